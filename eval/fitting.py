#!/usr/bin/env python3
"""What a program that fits into RAM pays under flashvm: nothing is paged, so all of it is flashvm's own cost.

usage: eval/fitting.py [--only sort,sqlite] [--rounds 15] [--ram 3G] [--variant NAME=COMMAND:MODE]... [--json FILE]

The variants take turns within a round, each round in another order: the program alone, flashvm in inline and in protect
mode (--no-uring, as in a container), and the program alone again, whose ratio is the noise. Prints medians of seconds and, in
parentheses, medians of the ratio to the program alone in the same round. Stops if a program prints something else than alone.

examples:
  eval/fitting.py --only sort --rounds 25
  eval/fitting.py --variant old=/tmp/old/flashvm:protect --variant new=/tmp/new/flashvm:protect
"""

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "soak"))

import programs

ROOT = Path(__file__).resolve().parent.parent
MODES = {"inline": ["--fault", "inline"], "protect": ["--fault", "protect", "--no-uring"], "handler": ["--fault", "handler"]}
PROGRAMS = ("pagebench", "dictionary", "sqlite", "sort", "gcc", "node", "bfs", "redis", "memcached")


class Pagebench(programs.Program):
    """Random touches of memory that fits."""

    name = "pagebench"
    count = {"tiny": (8, 50_000), "small": (64, 300_000), "full": (256, 2_500_000)}
    same_output = False

    def prepare(self):
        programs.compiled(self.folder / "pagebench", ["cc", "-O2", "-pthread", ROOT / "eval/pagebench.c"])

    def command(self, seed):
        return [self.folder / "pagebench", self.n()[0], 10, self.n()[1]]


def variant(text):
    """NAME=COMMAND:MODE"""
    name, _, rest = text.partition("=")
    command, _, mode = rest.rpartition(":")
    if not command or mode not in MODES:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=COMMAND:MODE, with one of the modes {', '.join(MODES)}")
    if not os.access(command, os.X_OK):
        raise argparse.ArgumentTypeError(f"{command} cannot be executed: cargo build --release")
    return name, [command, "run", "--quiet", *MODES[mode]]


def run(program, prefix, folder):
    """Seconds and a digest of the output."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        words = [str(word) for word in [*prefix, *program.command(1)]]
        start = time.monotonic()
        child = subprocess.run(words, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=programs.environment(program, Path(work)), check=False)
        seconds = time.monotonic() - start
    if child.returncode:
        sys.exit(f"{' '.join(words)[:200]}\nended with {child.returncode}: {child.stderr.decode(errors='replace')[-500:]}")
    return seconds, hashlib.sha256(child.stdout if program.same_output else b"").hexdigest()


def measure(program, variants, rounds, folder):
    """Seconds by variant, a list each."""
    draw, expected = random.Random(1), run(program, [], folder)[1]
    seconds = {name: [] for name in variants}
    for _ in range(rounds):
        for name in draw.sample(list(variants), len(variants)):
            taken, output = run(program, variants[name], folder)
            if output != expected:
                sys.exit(f"{program.name}: {name} has printed something else")
            seconds[name].append(taken)
    return seconds


def row(name, seconds):
    bare = seconds["alone"]
    cells = [f"{statistics.median(bare):.2f}"]
    cells += [f"{statistics.median(times):.2f} ({statistics.median(a / b for a, b in zip(times, bare)):.3f})"
              for other, times in seconds.items() if other != "alone"]
    return f"| {name} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PROGRAMS), help="programs (%(default)s)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ram", default="3G", help="RAM, more than any program takes (%(default)s)")
    parser.add_argument("--size", choices=programs.SIZES, default="full", help="of the programs' inputs (%(default)s)")
    parser.add_argument("--variant", type=variant, action="append", metavar="NAME=COMMAND:MODE",
                        help="a build of flashvm in a mode; any number of times (target/release/flashvm, inline and protect)")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="for inputs and store (%(default)s)")
    parser.add_argument("--json", type=Path, help="all runs")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    for name in names:
        if name not in PROGRAMS:
            parser.error(f"unknown program '{name}': known are {', '.join(PROGRAMS)}")
    if arguments.rounds < 1:
        parser.error(f"{arguments.rounds} rounds: give at least 1")
    try:
        here = ROOT / "target/release/flashvm"
        given = arguments.variant or [variant(f"{mode}={here}:{mode}") for mode in ("inline", "protect")]
    except argparse.ArgumentTypeError as reason:
        parser.error(str(reason))
    results = {}
    with tempfile.TemporaryDirectory(prefix="fitting-", dir=arguments.folder) as folder:
        shelf = programs.Shelf(Path(folder))
        paged = {name: [*words, "--ram", arguments.ram, "--flash", folder, "--"] for name, words in given}
        variants = {"alone": [], **paged, "alone again": []}
        columns = [f"{name}, s (ratio)" for name in variants if name != "alone"]
        print("| program | alone, s | " + " | ".join(columns) + " |\n| --- |" + " ---: |" * len(variants), flush=True)
        for name in names:
            try:
                if name == "pagebench":
                    place = Path(folder) / "pagebench-input"
                    place.mkdir()
                    program = Pagebench(place, arguments.size)
                    program.prepare()
                else:
                    program = shelf.program(name, arguments.size)
            except programs.Missing as reason:
                print(f"{name}: left out: {reason}", file=sys.stderr)
                continue
            results[name] = measure(program, variants, arguments.rounds, Path(folder))
            print(row(name, results[name]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
