#!/usr/bin/env python3
"""Whether frequency predicts writes better than recency (CRAW paper, Figures 4 and 5), by the sizes of the CPU caches.

    eval/craw-traces.sh -s 4 -r 250000000 -u RAW
    eval/craw-caches.py [--flashvm target/release/flashvm] RAW >docs/reproduction/craw/caches.csv

Filters the raw traces by each pair of first and second level, measures ranks, and CRAW's saving of I/O time at
12 sizes of memory.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST_KIB = (16, 32, 64)
SECOND_KIB = (256, 1024, 4096)
SIZES = "1%,2%,5%,10%,20%,30%,40%,50%,60%,70%,80%,90%"
COLUMNS = ["program", "first level KiB", "second level KiB", "references", "writes", "pages", "pages written",
           "rank 1 by recency", "rank 1 by frequency", "top tenth by recency", "top tenth by frequency",
           "frequency ahead at ranks", "inverted reads", "inverted by recency", "inverted by frequency", "CRAW's saving"]


def share_at_best(figure, ranks):
    """The share of ranked references at the best `ranks` ranks; octaves count in proportion."""
    ranked = sum(octave["references"] for octave in figure["octaves"])
    within = 0
    for octave in figure["octaves"]:
        length = octave["to"] + 1 - octave["from"]
        within += octave["references"] * min(1, max(0, ranks + 1 - octave["from"]) / length)
    return 100 * within / max(1, ranked)


def ahead(recency, frequency):
    """Octaves of ranks that have more writes by frequency than by recency."""
    found = [f"{f['from']}-{2 * f['from'] - 1}" for r, f in zip(recency["octaves"], frequency["octaves"])
             if f["references"] > r["references"]]
    return " ".join(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flashvm", default=ROOT / "target/release/flashvm")
    parser.add_argument("raw", type=pathlib.Path)
    args = parser.parse_args()

    def flashvm(*words):
        command = [str(word) for word in (args.flashvm, *words)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    table = csv.writer(sys.stdout)
    table.writerow(COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        filtered = pathlib.Path(folder) / "filtered.fvt"
        for raw in sorted(args.raw.glob("*.fvt")):
            for first in FIRST_KIB:
                for second in SECOND_KIB:
                    level = f"{first << 10},8,64"
                    flashvm("trace", "convert", "--filter", "--i1", level, "--d1", level, "--ll", f"{second << 10},8,64",
                            raw, filtered)
                    stat = json.loads(flashvm("trace", "stat", "--json", filtered))
                    reads, recency, frequency = (f for f in stat["figures"] if f["figure"] in (3, 4, 5))
                    tenth = -(-stat["pages_written"] // 10)
                    points = {}
                    if stat["references"]:
                        out = flashvm("sim", "--trace", filtered, "--policy", "clock,craw", "--frames", SIZES, "--json")
                        for line in out.splitlines():
                            row = json.loads(line)
                            points.setdefault(row["frames"], {})[row["policy"]] = row["io_time_us"]
                    savings = [1 - p["craw"] / p["clock"] for p in points.values()]
                    table.writerow([
                        raw.stem, first, second, stat["references"], stat["writes"], stat["pages"], stat["pages_written"],
                        *(f"{share:.1f} %" for share in (share_at_best(recency, 1), share_at_best(frequency, 1),
                                                         share_at_best(recency, tenth), share_at_best(frequency, tenth))),
                        ahead(recency, frequency),
                        *(f"{figure['inverted_percent']:.1f} %" for figure in (reads, recency, frequency)),
                        f"{100 * sum(savings) / len(savings):.1f} %" if savings else ""])
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
