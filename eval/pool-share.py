#!/usr/bin/env python3
"""Draws how the engine divides RAM between plain pages and compressed ones over the time of a program.

usage: eval/pool-share.py [--only dictionary,sort,sqlite] [--size full] [--flashvm target/release/flashvm] [--svg FILE]

It reads `flashvm top --json` every 0.2 s. The picture has a row for each program: frames of the pool, its
share (the limit that the engine has chosen), and other pages, as parts of the budget.

examples:
  eval/pool-share.py --svg docs/pool-share.svg
  eval/pool-share.py --only gcc --size small
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "soak"))

import programs

ROOT = Path(__file__).resolve().parent.parent
INTERVAL_S = 0.2
# Pixels.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 720, 130, 46, 14, 34, 52
COLOURS = {"plain": "#b8c4d6", "pool": "#d9822b"}


def readings(flashvm, program, folder):
    """Runs a program; returns its budget in pages and [seconds, plain pages, pool pages, share of the pool]."""
    budget = (program.ram_mib[program.size] << 20) // 4096
    command = [flashvm, "run", "--quiet", "--ram", budget * 4096, "--flash", folder, "--flash-size", program.flash_size,
               "--", *program.command(1)]
    with tempfile.TemporaryDirectory(dir=folder) as work:
        start = time.monotonic()
        run = subprocess.Popen([str(word) for word in command], cwd=work, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, env=programs.environment(program, work))
        # `top` needs a run to begin with.
        time.sleep(INTERVAL_S)
        top = subprocess.Popen([str(flashvm), "top", "--json", "--interval", str(INTERVAL_S), str(run.pid)],
                               stdout=subprocess.PIPE, text=True)
        rows = []
        for line in top.stdout:
            for reading in json.loads(line)["runs"]:
                totals = reading["totals"]
                pool = totals["gauges"]["pool_frames"]
                rows.append([time.monotonic() - start, totals["resident_pages"] - pool, pool,
                             totals["gauges"]["pool_share_frames"]])
            if run.poll() is not None:
                break
        top.terminate()
        top.wait()
        if run.wait() != 0:
            sys.exit(f"eval/pool-share.py: {program.name} ended with {run.returncode}")
    if len(rows) < 2:
        sys.exit(f"eval/pool-share.py: {program.name} ended before two readings: take a larger --size")
    return budget, rows


def area(points, colour):
    """A polygon from a list of (x, low, high)."""
    outline = [(x, high) for x, _, high in points] + [(x, low) for x, low, _ in reversed(points)]
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
    return f'<polygon points="{places}" fill="{colour}"/>'


def chart(name, ram_mib, budget, rows, top):
    """The lines of SVG for one program."""
    end = rows[-1][0]
    left, width, base = LEFT, WIDTH - LEFT - RIGHT, top + HEIGHT

    def x(seconds):
        return left + width * seconds / end

    def y(pages):
        return base - HEIGHT * min(pages / budget, 1)

    lines = [f'<text x="{left}" y="{top - 8}" font-weight="bold">{name} in {ram_mib} MiB</text>']
    lines.append(area([(x(t), y(0), y(pool)) for t, _, pool, _ in rows], COLOURS["pool"]))
    lines.append(area([(x(t), y(pool), y(pool + plain)) for t, plain, pool, _ in rows], COLOURS["plain"]))
    share = " ".join(f"{x(t):.1f},{y(share):.1f}" for t, _, _, share in rows)
    lines.append(f'<polyline points="{share}" fill="none" stroke="#222" stroke-width="1.5"/>')
    lines.append(f'<path d="M{left},{top} V{base} H{left + width}" fill="none" stroke="#888"/>')
    for part in (0, 0.5, 1):
        lines.append(f'<text x="{left - 6}" y="{y(part * budget) + 4}" text-anchor="end">{part:.0%}</text>')
    for part in (0, 0.25, 0.5, 0.75, 1):
        lines.append(f'<text x="{x(part * end)}" y="{base + 16}" text-anchor="middle">{part * end:.1f} s</text>')
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="dictionary,sort,sqlite", metavar="PROGRAM,...")
    parser.add_argument("--size", default="full", choices=("tiny", "small", "full"))
    parser.add_argument("--flashvm", type=Path, default=ROOT / "target/release/flashvm")
    parser.add_argument("--svg", type=Path, default=Path("pool-share.svg"), metavar="FILE")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    for name in names:
        if name not in programs.ALL:
            parser.error(f"no program '{name}': there are {', '.join(programs.ALL)}")
    if not arguments.flashvm.is_file():
        parser.error(f"no command at {arguments.flashvm}: cargo build --release")
    lines, top = [], TOP + 20
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        shelf = programs.Shelf(Path(folder))
        for name in names:
            try:
                program = shelf.program(name, arguments.size)
            except programs.Missing as reason:
                sys.exit(f"eval/pool-share.py: {name} cannot run here: {reason}")
            budget, rows = readings(arguments.flashvm.resolve(), program, Path(folder))
            lines += chart(name, program.ram_mib[program.size], budget, rows, top)
            top += HEIGHT + GAP
            pools, shares = [row[2] / budget for row in rows], [row[3] / budget for row in rows]
            print(f"{name}: {rows[-1][0]:.1f} s, pool {max(pools):.0%} of RAM at most, share {min(shares):.0%} to "
                  f"{max(shares):.0%}, {shares[-1]:.0%} at the end", flush=True)
    legend = [f'<rect x="{LEFT}" y="10" width="12" height="12" fill="{COLOURS["pool"]}"/>',
              f'<text x="{LEFT + 18}" y="20">compressed pages</text>',
              f'<rect x="{LEFT + 150}" y="10" width="12" height="12" fill="{COLOURS["plain"]}"/>',
              f'<text x="{LEFT + 168}" y="20">other pages</text>',
              f'<path d="M{LEFT + 270},16 h16" stroke="#222" stroke-width="1.5"/>',
              f'<text x="{LEFT + 292}" y="20">share of the pool</text>']
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top - GAP + 30}" '
            f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>')
    arguments.svg.write_text("\n".join([head, *legend, *lines, "</svg>", ""]))
    print(f"drawn: {arguments.svg}")


if __name__ == "__main__":
    main()
