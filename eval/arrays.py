#!/usr/bin/env python3
"""An array larger than RAM, worked on by numpy: managed arrays beside a program that is paged whole, and numpy.memmap.

usage (as root): eval/arrays.py [--mib 1024] [--ram 256] [--rounds 3] [--only rows,columns] [--patience 120] [--json FILE]

Each way runs every part in a fresh process, in turn:
  arrays   flashvm run --ram RAM --select api, the array by flashvm.empty
  started  the same by flashvm.start(RAM) in a process that runs already: handler mode
  whole    flashvm run --ram RAM (+ 16 MiB for the interpreter, which has 13 MiB of memory of its own), the array by numpy
  memmap   numpy.memmap of a file beside the flash store, in a memory cgroup with a limit of RAM + 32 MiB: the page
           cache counts there, that of the interpreter's code, too

The array has numbers that do not repeat, so nothing compresses well. Seconds of the part alone, medians. A part that takes
longer than --patience with its array filled is ended, and counts as that long.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import peers

ROOT = Path(__file__).resolve().parent.parent
INTERPRETER_MIB = 16
INTERPRETER_AND_CODE_MIB = 32
COLUMNS = 4096

#: A part: the names that it may use are `a`, a matrix of 4-byte floats, `numpy` and `rng`.
PARTS = {
    "rows": "a.sum(axis=1).sum()",
    "columns": "sum(float(a[:, c].sum()) for c in range(0, COLUMNS, 1024))",
    "product": "float((a[:, :256].T @ a[:, 256:512]).sum())",
    "mask": "int((a > 0.5).sum())",
    "sort": "a.reshape(-1).sort()",
    "add.at": "numpy.add.at(a.reshape(-1), rng.integers(0, a.size, 100_000), 1)",
}

PROGRAM = """
import sys, time
import numpy
way, mib, part, path = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
COLUMNS = {columns}
shape = (mib * 262144 // COLUMNS, COLUMNS)
rng = numpy.random.default_rng(1)
if way in ("arrays", "started"):
    sys.path.insert(0, {package!r})
    import flashvm
    if way == "started":
        flashvm.start(f"{{sys.argv[5]}}M", flash=sys.argv[6])
    a = flashvm.empty(shape, dtype="f4")
elif way == "memmap":
    a = numpy.memmap(path, dtype="f4", mode="w+", shape=shape)
else:
    a = numpy.empty(shape, dtype="f4")
for row in range(0, shape[0], 256):
    a[row:row + 256] = rng.random((min(256, shape[0] - row), COLUMNS), dtype="f4")
print("filled", flush=True)
start = time.perf_counter()
eval(part)
print(time.perf_counter() - start)
"""


def seconds(way, part, options, cgroup, folder):
    program = PROGRAM.format(columns=COLUMNS, package=str(ROOT / "python/src"))
    words = [sys.executable, "-c", program, way, str(options.mib), PARTS[part], str(folder / "array"), str(options.ram), str(folder)]
    if way in ("arrays", "whole"):
        ram = options.ram + (0 if way == "arrays" else INTERPRETER_MIB)
        select = "api" if way == "arrays" else "all"
        words = [ROOT / "target/release/flashvm", "run", "--quiet", "--ram", f"{ram}M", "--flash", folder,
                 "--select", select, "--", *words]
    environment = {**os.environ, "FLASHVM": str(ROOT / "target/release/flashvm")}
    running = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment,
                               preexec_fn=cgroup.join if way == "memmap" else None)
    if running.stdout.readline() != "filled\n":
        sys.exit(f"arrays.py: {part}, {way}: the program ended with {running.wait()} before its array was filled")
    try:
        taken = float(running.communicate(timeout=options.patience)[0])
    except subprocess.TimeoutExpired:
        # To flashvm it is a request to end the program.
        running.send_signal(signal.SIGTERM)
        running.communicate()
        taken = options.patience
    (folder / "array").unlink(missing_ok=True)
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="the array")
    parser.add_argument("--ram", type=int, default=256, help="its RAM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--patience", type=float, default=120, help="seconds after which a part is ended")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    parts = options.only.split(",")
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        parser.error(f"--only {unknown[0]}: parts are {', '.join(PARTS)}")
    if os.geteuid() != 0:
        sys.exit("arrays.py: the memory cgroup needs root: run it with sudo")
    try:
        cgroup = peers.Cgroup("flashvm-arrays")
    except peers.Refused as why:
        sys.exit(f"arrays.py: {why}")
    cgroup.limit((options.ram + INTERPRETER_AND_CODE_MIB) * peers.MIB)
    ways = ("arrays", "started", "whole", "memmap")
    found = {part: {way: [] for way in ways} for part in parts}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for number in range(options.rounds):
            for part in parts:
                for way in ways if number % 2 == 0 else reversed(ways):
                    taken = seconds(way, part, options, cgroup, Path(folder))
                    found[part][way].append(taken)
                    print(f"round {number + 1}, {part}, {way}: {taken:.2f} s", file=sys.stderr, flush=True)
    print("| part | arrays, s | started, s | whole program, s | memmap, s | started / arrays | whole / arrays | memmap / arrays |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for part, by_way in found.items():
        medians = [statistics.median(by_way[way]) for way in ways]
        more = ["> " if seconds >= options.patience else "" for seconds in medians]
        taken = [f"{than}{seconds:.2f}" for than, seconds in zip(more, medians)]
        ratios = [f"{than}{seconds / medians[0]:.2f}" for than, seconds in zip(more[1:], medians[1:])]
        print(f"| {part} | {' | '.join(taken + ratios)} |")
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
