#!/usr/bin/python3
"""What a saved order of pages gives: programs that run alike every time, with and without `--prefetch-pages`.

usage: eval/saved-pages.py [--rounds 3] [--only NAME]...

Each program runs once with `--save-pages`, then in turn without and with the saved order. Prints the table of
docs/saved-pages.md: medians of seconds, of faults that waited for flash, and of pages read from it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLASHVM = ROOT / "target/release/flashvm"

LIST = r"""
#include <stdio.h>
#include <stdlib.h>
enum { PAGES = 128 << 8 };
struct node { struct node *next; size_t value; char rest[4080]; };
int main(void) {
    struct node *nodes = malloc(PAGES * sizeof *nodes);
    size_t *order = malloc(PAGES * sizeof *order), sum = 0;
    unsigned long long state = 1;
    for (size_t i = 0; i < PAGES; i++) order[i] = i;
    for (size_t i = PAGES - 1; i > 0; i--) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        size_t j = (state >> 33) % (i + 1), other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
    for (size_t i = 0; i < PAGES; i++) {
        for (size_t j = 0; j < sizeof nodes->rest; j++) {
            state = state * 6364136223846793005ULL + 1442695040888963407ULL;
            nodes[i].rest[j] = state >> 56;
        }
        nodes[i].value = i;
    }
    for (size_t i = 0; i < PAGES; i++) nodes[order[i]].next = &nodes[order[(i + 1) % PAGES]];
    struct node *at = nodes;
    for (size_t i = 0; i < 3 * PAGES; i++, at = at->next) sum += at->value;
    printf("%zu\n", sum);
}
"""
ROWS = """
import numpy
random = numpy.random.default_rng(1)
table = random.random((65536, 512))
rows = random.integers(0, 65536, 40000)
print(sum(float(table[row, 0]) for _ in range(3) for row in rows))
"""


def programs(folder):
    """Name, RAM, command and further options of each program."""
    (folder / "list.c").write_text(LIST)
    subprocess.run(["cc", "-O2", "-o", folder / "list", folder / "list.c"], check=True)
    subprocess.run(["cc", "-O2", "-w", "-o", folder / "bfs", ROOT / "eval/soak/bfs.c"], check=True)
    dictionary = ["/usr/bin/python3", ROOT / "eval/programs/dictionary.py", "700000"]
    return [
        ("a linked list through 128 MiB, followed 3 times", "32M", [folder / "list"], []),
        ("numpy: 40,000 rows of 4 KiB at random of 256 MiB, 3 times", "64M", ["/usr/bin/python3", "-c", ROWS], []),
        ("`eval/programs/dictionary.py 700000`, `PYTHONHASHSEED=0`", "64M", dictionary, []),
        ("BFS (`eval/soak/bfs.c 700000`)", "32M", [folder / "bfs", "700000"], []),
        ("the dictionary, `--compress off`", "64M", dictionary, ["--compress", "off"]),
    ]


def run(command, ram, options, folder):
    """Seconds, faults that waited for flash, and pages read from it."""
    stats = folder / "stats.json"
    words = [FLASHVM, "run", "--quiet", "--ram", ram, "--stats", stats, *options, "--", *command]
    start = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONHASHSEED": "0"})
    seconds = time.monotonic() - start
    totals = json.loads(stats.read_text())["totals"]
    return seconds, totals["faults"]["major"], totals["pages_in"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="programs whose name contains this")
    args = parser.parse_args()
    if not FLASHVM.exists():
        sys.exit(f"saved-pages: {FLASHVM} is missing: cargo build --release")
    print("| program | RAM | without: s | waits for flash | pages in | with: s | waits for flash | pages in |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        order = folder / "order.fvt"
        for name, ram, command, options in programs(folder):
            if args.only and not any(part in name for part in args.only):
                continue
            run(command, ram, [*options, "--save-pages", order], folder)
            ways = {"without": options, "with": [*options, "--prefetch-pages", order]}
            runs = {way: [] for way in ways}
            for _ in range(args.rounds):
                for way, all_options in ways.items():
                    runs[way].append(run(command, ram, all_options, folder))
            cells = []
            for way in ways:
                seconds, waits, pages = (statistics.median(column) for column in zip(*runs[way]))
                cells += [f"{seconds:.2f}", f"{waits:,.0f}", f"{pages:,.0f}"]
            print(f"| {name} | {ram} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
