#!/usr/bin/env python3
"""Misses of one reference trace: simulated, and by a program that touches pages in the trace's order under flashvm.

usage: eval/sim-live.py [--short] [--trace FILE] [--policy clock,sieve] [--ram 16M,32M] [--json FILE]

Without --trace: 400,000 references to 16,384 pages, by a Zipf law with exponent 0.9, 30 % of them stores; seed 1.
The simulator (`flashvm sim --sight live`) has the frames that the policy has live: the budget without read buffers
(budget / 128, at least min(budget / 32, 512 KiB), from 256 KiB to 16 MiB) and without the frames that are kept free or on standby (max(frames / 64,
min(64, frames / 16))). Live, nothing is prefetched or compressed, first stores fault (a policy sees them with `--sight live`),
and a miss is a fault on a page that is not in RAM.
Counts, not times: other programs may run beside it. Ends with 1 if a pair differs by more than --most percent.
"""

import argparse
import bisect
import itertools
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLASHVM = ROOT / "target/release/flashvm"
WORKLOAD = ROOT / "target/release/flashvm-workload"
PAGE = 4096
POLICIES = "fifo,clock,two-list,segmented-fifo,tenure,car,arc,sieve,s3-fifo,lru,nru,wage,cflru,craw,craw-a"


def zipf(path, pages, references):
    rng = random.Random(1)
    places = list(range(pages))
    rng.shuffle(places)
    sums = list(itertools.accumulate(1 / (rank + 1) ** 0.9 for rank in range(pages)))
    with open(path, "w") as out:
        for _ in range(references):
            place = places[bisect.bisect_left(sums, rng.random() * sums[-1])]
            out.write(f"{'s' if rng.random() < 0.3 else 'l'} {place * PAGE:#x} 1\n")


def frames_of_policy(ram):
    """The frames that a policy has of a budget."""
    frames = ram // PAGE
    words = max(frames // 128 // 64, min(frames // 32 // 64, 2))
    frames -= min(max(words, 1), 64) * 64
    return frames - max(frames // 64, min(64, frames // 16))


def simulated(trace, policy, frames):
    words = [FLASHVM, "sim", "--trace", trace, "--policy", policy, "--frames", str(frames), "--sight", "live", "--json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["misses"]


def live(trace, policy, ram, folder, options):
    stats = Path(folder) / "stats.json"
    words = [FLASHVM, "run", "--quiet", "--ram", str(ram), "--policy", policy, "--prefetcher", "off", "--compress", "off",
             "--first-store", "fault", "--stats", stats, *options, "--", WORKLOAD, "trace", trace]
    subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=600)
    faults = json.loads(stats.read_text())["totals"]["faults"]
    return faults["major"] + faults["zero"]


def size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="three policies, one budget")
    parser.add_argument("--trace", type=Path, help="any trace that flashvm sim reads")
    parser.add_argument("--policy", default=POLICIES, help="separated by commas (%(default)s)")
    parser.add_argument("--ram", default="16M,32M", help="budgets, separated by commas (%(default)s)")
    parser.add_argument("--most", type=float, default=5, help="percent (%(default)g)")
    parser.add_argument("--option", action="append", default=[], help="an option of flashvm run")
    parser.add_argument("--json", type=Path, help="all pairs")
    options = parser.parse_args()
    policies, budgets = options.policy.split(","), [size(ram) for ram in options.ram.split(",")]
    if options.short:
        policies, budgets = ["clock", "tenure", "s3-fifo"], [16 << 20]
    rows, far = [], 0
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        trace = options.trace or Path(folder) / "zipf.txt"
        if not options.trace:
            zipf(trace, 16_384, 400_000)
        print("| policy | RAM, MiB | frames of the policy | simulated | live | live / simulated |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for policy in policies:
            for ram in budgets:
                frames = frames_of_policy(ram)
                pair = simulated(trace, policy, frames), live(trace, policy, ram, folder, options.option)
                ratio = pair[1] / pair[0]
                far += abs(ratio - 1) * 100 > options.most
                rows.append({"policy": policy, "ram": ram, "frames": frames, "simulated": pair[0], "live": pair[1]})
                print(f"| {policy} | {ram >> 20} | {frames:,} | {pair[0]:,} | {pair[1]:,} | {ratio:.3f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows))
    if far:
        sys.exit(f"sim-live.py: {far} of {len(rows)} pairs differ by more than {options.most:g} %")


if __name__ == "__main__":
    main()
