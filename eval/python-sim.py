#!/usr/bin/env python3
"""Simulations from Python beside the command and beside libCacheSim's package, on one trace, in turns.

Run it with the interpreter of an environment that has `flashvm`, numpy and, for the peer, `libcachesim`. All times
begin with a file in the page cache. For `flashvm` and the command they are the simulation's own (wall_s) and the
whole call with reading the trace; for libCacheSim the whole call.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy

import flashvm
from flashvm import sim

#: Our policy, and the peer's class.
PEERS = {
    "lru": "LRU",
    "fifo": "FIFO",
    "clock(insert=clear)": "Clock",
    "sieve": "Sieve",
    "s3-fifo": "S3FIFO",
    "arc": "ARC",
    "opt": "Belady",
}


def trace(path: Path, references: int, pages: int) -> None:
    """A skewed trace in libCacheSim's format: time, key, size, next access."""
    rng = numpy.random.default_rng(1)
    keys = (pages * rng.random(references) ** 4).astype("u8")
    order = numpy.argsort(keys, kind="stable")
    following = numpy.full(references, -1, "i8")
    same = keys[order[1:]] == keys[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    record = numpy.dtype([("time", "<u4"), ("key", "<u8"), ("size", "<u4"), ("next", "<i8")])
    rows = numpy.zeros(references, record)
    rows["time"], rows["key"], rows["size"], rows["next"] = numpy.arange(references), keys + 1, 1, following
    rows.tofile(path)


def package(path: Path, policy: str, frames: int) -> tuple[int, float, float]:
    begin = time.perf_counter()
    figures = sim.simulate(path, policy, frames, format="oracle-general")
    return figures["misses"], figures["wall_s"], time.perf_counter() - begin


def command(path: Path, policy: str, frames: int) -> tuple[int, float, float]:
    words = [flashvm.command(), "sim", "--json", "--trace", path, "--format", "oracle-general", "--threads", "1"]
    begin = time.perf_counter()
    output = subprocess.run([*words, "--policy", policy, "--frames", str(frames)], check=True, stdout=subprocess.PIPE)
    took = time.perf_counter() - begin
    figures = json.loads(output.stdout)
    return figures["misses"], figures["wall_s"], took


def peer(path: Path, policy: str, frames: int) -> tuple[int, float, float]:
    import libcachesim

    reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    cache = getattr(libcachesim, PEERS[policy])(cache_size=frames)
    begin = time.perf_counter()
    misses = cache.process_trace(reader)[0] * path.stat().st_size / 24
    took = time.perf_counter() - begin
    return round(misses), took, took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--references", type=int, default=5_000_000)
    parser.add_argument("--pages", type=int, default=200_000)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policies", default=";".join(PEERS), help="separated by semicolons")
    args = parser.parse_args()
    ways = {"package": package, "command": command}
    try:
        import libcachesim  # noqa: F401

        ways["libCacheSim"] = peer
    except ImportError:
        print("libCacheSim is not installed: left out")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.oracleGeneral")
        trace(path, args.references, args.pages)
        print(f"{'policy':<20} {'by':<12} {'misses':>10} {'simulation':>12} {'whole call':>12}   (median of {args.rounds})")
        for policy in args.policies.split(";"):
            taken = {way: [] for way in ways}
            for _ in range(args.rounds):
                for way, run in ways.items():
                    taken[way].append(run(path, policy, args.frames))
            for way, times in taken.items():
                assert len({misses for misses, _, _ in times}) == 1
                alone, whole = (statistics.median(column) for column in list(zip(*times))[1:])
                print(f"{policy:<20} {way:<12} {times[0][0]:>10} {alone:>10.3f} s {whole:>10.3f} s")


if __name__ == "__main__":
    main()
