#!/usr/bin/env python3
"""What a rack of machines gains that share one pool: RAM against time and the network's load.

usage: eval/rack.py [--machines 40] [--hours 8] [--seed 1] [--svg FILE] SIZE.json...

Each SIZE.json is the output of `flashvm size --json --flash nbd://HOST/ -- PROGRAM`: seconds and misses of a program by its RAM, with
pages at another machine. Each machine runs programs of these, chosen by the seed, one after the other, with a pause between
two. A machine has so much RAM for programs; what does not fit is in the pool, for as long as the program runs. The pool
needs room for the most that was in it at a time. A miss is a page read and, at most, a page written: the load counts both.

example:
  flashvm size --json --flash nbd://HOST/ -- python3 train.py > train.json
  eval/rack.py docs/rack/*.json --svg docs/rack.svg
"""

import argparse
import json
import random
import sys
from pathlib import Path

PAGE = 4096
# Pauses between two programs, in parts of the program's time in RAM.
PAUSES = (0.0, 2.0)
# RAM of a machine for programs, in parts of the largest program's.
PARTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
# Pixels.
WIDTH, HEIGHT, LEFT, TOP = 720, 320, 60, 40


class Program:
    """Seconds and misses by RAM, as `flashvm size` forecasts them."""

    def __init__(self, path):
        object_ = json.loads(path.read_text())
        if "forecast" not in object_:
            sys.exit(f"{path}: no seconds: make it with `flashvm size --json -- PROGRAM`")
        self.name = path.stem
        self.used = object_["forecast"]["used_bytes"]
        self.in_ram = object_["forecast"]["in_ram_s"]
        self.points = sorted((point["ram_bytes"], point["seconds"], point["misses"]) for point in object_["curve"])

    def at(self, ram):
        """Seconds and misses with so much RAM."""
        if ram >= self.used:
            return self.in_ram, 0
        below = [point for point in self.points if point[0] <= ram]
        above = [point for point in self.points if point[0] > ram]
        low = below[-1] if below else self.points[0]
        high = above[0] if above else (self.used, self.in_ram, 0)
        part = 0 if high[0] == low[0] else max(0, ram - low[0]) / (high[0] - low[0])
        return tuple(low[i] + part * (high[i] - low[i]) for i in (1, 2))


def simulate(programs, ram, machines, seconds, seed):
    """Time in programs beside their time in RAM, the pool's most bytes, and the network's mean and most bytes/s."""
    changes, took, alone, moved = [], 0.0, 0.0, 0.0
    for machine in range(machines):
        chance = random.Random(f"{seed} {machine}")
        now = chance.uniform(*PAUSES) * max(program.in_ram for program in programs)
        while now < seconds:
            program = chance.choice(programs)
            length, misses = program.at(ram)
            rate = 2 * misses * PAGE / length
            away = max(0, program.used - ram)
            changes += [(now, away, rate), (now + length, -away, -rate)]
            took, alone, moved = took + length, alone + program.in_ram, moved + rate * length
            now += length + chance.uniform(*PAUSES) * program.in_ram
    most, load, held, rate = 0, 0, 0, 0
    for _, of_pool, of_link in sorted(changes):
        held, rate = held + of_pool, rate + of_link
        most, load = max(most, held), max(load, rate)
    return took / alone, most, moved / seconds, load


def picture(rows, machines):
    """Total RAM and time by the RAM of a machine."""
    width, base = WIDTH - 2 * LEFT, TOP + HEIGHT
    top = max(row["total"] for row in rows)
    slowest = max(row["slower"] for row in rows)
    step = width / len(rows)
    lines = []
    for at, row in enumerate(rows):
        x, wide = LEFT + at * step + step * 0.15, step * 0.7
        own, pool = HEIGHT * row["own"] / top, HEIGHT * row["pool"] / top
        lines.append(f'<rect x="{x:.1f}" y="{base - own:.1f}" width="{wide:.1f}" height="{own:.1f}" fill="#b8c4d6"/>')
        lines.append(f'<rect x="{x:.1f}" y="{base - own - pool:.1f}" width="{wide:.1f}" height="{pool:.1f}" fill="#d9822b"/>')
        lines.append(f'<text x="{x + wide / 2:.1f}" y="{base + 16}" text-anchor="middle">{row["part"]:.0%}</text>')
    places = " ".join(f"{LEFT + (at + 0.5) * step:.1f},{base - HEIGHT * (row['slower'] - 1) / max(slowest - 1, 0.01):.1f}"
                      for at, row in enumerate(rows))
    lines.append(f'<polyline points="{places}" fill="none" stroke="#222" stroke-width="2"/>')
    for part in (0, 0.5, 1):
        y = base - HEIGHT * part
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{top * part / 2**30:.1f} GiB</text>')
        lines.append(f'<text x="{LEFT + width + 6}" y="{y + 4}">x {1 + (slowest - 1) * part:.2f}</text>')
    lines.append(f'<path d="M{LEFT},{TOP} V{base} H{LEFT + width}" fill="none" stroke="#888"/>')
    legend = [f'<text x="{LEFT}" y="16">RAM of {machines} machines (grey) and of the pool (orange); time (line); by a machine\'s '
              f'RAM in parts of its largest program</text>']
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{base + 30}" font-family="sans-serif" '
            f'font-size="11"><rect width="100%" height="100%" fill="white"/>')
    return "\n".join([head, *legend, *lines, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="+", type=Path, metavar="SIZE.json")
    parser.add_argument("--machines", type=int, default=40)
    parser.add_argument("--hours", type=float, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    programs = [Program(path) for path in sorted(arguments.sizes)]
    largest = max(program.used for program in programs)
    rows = []
    print("| RAM of a machine | of the pool | of all | saved | time | network, mean | at most |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    whole = largest * arguments.machines
    for part in PARTS:
        ram = largest * part
        slower, pool, mean, most = simulate(programs, ram, arguments.machines, arguments.hours * 3600, arguments.seed)
        own = ram * arguments.machines
        rows.append({"part": part, "own": own, "pool": pool, "total": own + pool, "slower": slower})
        print(f"| {ram / 2**20:.0f} MiB | {pool / 2**30:.2f} GiB | {(own + pool) / 2**30:.2f} GiB | "
              f"{1 - (own + pool) / whole:.0%} | x {slower:.2f} | {mean * 8e-9:.2f} Gbit/s | {most * 8e-9:.2f} Gbit/s |")
    if arguments.svg:
        arguments.svg.write_text(picture(rows, arguments.machines))


if __name__ == "__main__":
    main()
