#!/usr/bin/env python3
"""Compares replacement policies over traces: its output is in docs/policies.md.

    eval/policies.py [--flashvm target/release/flashvm] [TRACE...]

Without traces: those in the repository. Ratios to CLOCK are geometric means over all traces and sizes of
memory. "worst" is a policy's largest I/O time as a multiple of the least among the others at the same trace
and size, without OPT; "over 5 %" counts the points at which it exceeds that least by more than 5 %.
"""

import argparse
import glob
import json
import math
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
POLICIES = ("clock fifo lru nru two-list segmented-fifo tenure car arc sieve s3-fifo cflru cfclock lru-wsr craw craw-a craw-c "
            "wage fab bplru clc").split()
SIZES = "5%,10%,20%,30%,40%,60%,80%"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flashvm", default=ROOT / "target/release/flashvm")
    parser.add_argument("traces", nargs="*")
    args = parser.parse_args()
    data = ROOT / "crates/flashvm-sim/tests/data"
    traces = args.traces or sorted(glob.glob(str(ROOT / "traces/*.fvt"))) + [
        str(data / "gcc.trace.gz"), str(data / "cloudPhysicsIO.txt.zst")]
    points = {}
    for trace in traces:
        command = [args.flashvm, "sim", "--trace", trace, "--policy", ",".join(POLICIES), "--frames", SIZES, "--json"]
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
            figures = json.loads(line)
            points.setdefault((trace, figures["frames"]), {})[figures["policy"]] = figures
    print(f"{len(traces)} traces, {len(points)} points")
    print("| policy | I/O time | reads | writes | worst | over 5 % |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for policy in POLICIES:
        def mean(key, least):
            logs = [math.log(max(p[policy][key], least) / max(p["clock"][key], least)) for p in points.values()]
            return math.exp(sum(logs) / len(logs))
        against = [p[policy]["io_time_us"] / min(f["io_time_us"] for name, f in p.items() if name != policy)
                   for p in points.values()]
        over = sum(ratio > 1.05 for ratio in against)
        print(f"| {policy} | {mean('io_time_us', 1):.3f} | {mean('page_reads', 1):.3f} | {mean('page_writes', 1):.3f} "
              f"| {max(against):.2f} | {over} |")
    print()
    print("| trace | craw | craw-a | best of the others | wage | at most over the best |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for trace in traces:
        of = [p for (name, _), p in points.items() if name == trace]

        def mean(policy):
            logs = [math.log(p[policy]["io_time_us"] / p["clock"]["io_time_us"]) for p in of]
            return math.exp(sum(logs) / len(logs))
        best = min((q for q in POLICIES if q != "wage"), key=mean)
        worst = max(p["wage"]["io_time_us"] / min(f["io_time_us"] for q, f in p.items() if q != "wage") for p in of)
        print(f"| {pathlib.Path(trace).name} | {mean('craw'):.3f} | {mean('craw-a'):.3f} | {best} {mean(best):.3f} "
              f"| {mean('wage'):.3f} | {100 * (worst - 1):+.1f} % |")


if __name__ == "__main__":
    main()
