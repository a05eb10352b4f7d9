#!/usr/bin/env python3
"""A Dask worker with more data than RAM: its memory under flashvm, beside Dask's own spilling.

usage: eval/dask-memory.py [--ram MIB] [--rounds N] [--json FILE]        (an environment with flashvm, dask, distributed, numpy)

Ways, in turn, each with a scheduler and one worker of one thread:
  flashvm  flashvm run --ram RAM -- dask worker --memory-limit 0
  spilling dask worker --memory-limit RAM: Dask writes results to disk from 60 % on, pauses at 80 %, restarts at 95 %

Parts: `kept`, blocks of random numbers of 1/8 RAM that are kept, 2 RAM in all, each used twice more; `transposed`, a matrix of 1.5 RAM added to
its transpose; `one task`, a task that needs 2 RAM by itself. Prints medians of seconds, or what ended the part.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dask.array
import numpy
from distributed import Client, KilledWorker

WAIT_S = 120
MIB = 1 << 20


def kept(client, ram):
    numbers = ram * MIB // 8 // 8
    blocks = [client.submit(lambda i=i: numpy.random.default_rng(i).integers(1 << 62, size=numbers), pure=False) for i in range(16)]
    sums = [client.gather([client.submit(numpy.sum, block, pure=False) for block in blocks]) for _ in range(2)]
    assert sums[0] == sums[1] and len(set(sums[0])) == 16


def transposed(client, ram):
    side = int((1.5 * ram * MIB / 8) ** 0.5) // 8 * 8
    matrix = client.persist(dask.array.random.default_rng(1).random((side, side), chunks=side // 8))
    total = client.compute((matrix + matrix.T).sum()).result()
    assert abs(total / side / side - 1) < 0.01


def one_task(client, ram):
    numbers = 2 * ram * MIB // 8
    task = client.submit(lambda: float(numpy.arange(float(numbers))[::-1].sum()), pure=False)
    assert task.result() == numbers * (numbers - 1) / 2


PARTS = {"kept": kept, "transposed": transposed, "one task": one_task}


def started(words):
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(way, part, ram):
    """Seconds, or a text that says what ended the part."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="dask-memory-") as folder:
        ready = Path(folder, "scheduler.json")
        python = [sys.executable, "-m"]
        words = ["distributed.cli.dask_worker", "--scheduler-file", ready, "--nthreads", "1", "--no-dashboard",
                 "--local-directory", folder]
        if way == "flashvm":
            words = ["flashvm", "run", "--quiet", "--ram", f"{ram}M", "--flash", folder, "-m", *words, "--memory-limit", "0", "--no-nanny"]
        else:
            words += ["--memory-limit", f"{ram}MiB"]
        processes = [started([*python, "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", ready])]
        try:
            until = time.monotonic() + WAIT_S
            while not ready.exists() and time.monotonic() < until:
                time.sleep(0.05)
            processes.append(started([*python, *words]))
            with Client(scheduler_file=str(ready)) as client:
                client.wait_for_workers(1, timeout=WAIT_S)
                begun = time.monotonic()
                try:
                    PARTS[part](client, ram)
                except KilledWorker:
                    return "killed"
                return time.monotonic() - begun
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(60)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ram", type=int, default=256, help="MiB")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    if given.ram < 192:
        sys.exit(f"dask-memory.py: --ram {given.ram}: a worker needs 192 MiB or more")
    found = {(part, way): [] for part in PARTS for way in ("flashvm", "spilling")}
    for turn in range(given.rounds):
        for (part, way), results in found.items():
            results.append(measure(way, part, given.ram))
            print(f"round {turn + 1}: {part}, {way}: {results[-1]}", file=sys.stderr, flush=True)
    print(f"| part, RAM {given.ram} MiB | flashvm, s | Dask's spilling, s | ratio |\n| --- | ---: | ---: | ---: |")
    for part in PARTS:
        cells, medians = [], []
        for way in ("flashvm", "spilling"):
            results = found[part, way]
            seconds = [result for result in results if not isinstance(result, str)]
            medians.append(statistics.median(seconds) if len(seconds) == len(results) else None)
            cells.append(f"{medians[-1]:.1f}" if medians[-1] else f"killed in {len(results) - len(seconds)} of {len(results)}")
        ratio = f"{medians[0] / medians[1]:.2f}" if all(medians) else ""
        print(f"| {part} | {cells[0]} | {cells[1]} | {ratio} |")
    if given.json:
        given.json.write_text(json.dumps([{"part": p, "way": w, "results": r} for (p, w), r in found.items()]) + "\n")


if __name__ == "__main__":
    main()
