"""Simulated misses and writes are those of naive models, and of the command."""

import random
from collections import OrderedDict

import numpy
import pytest
from conftest import GCC

from flashvm.sim import Trace, miss_curve, policies, simulate, sweep


def naive(trace, writes, frames, recency):
    """Misses and page writes of LRU, or of FIFO without recency."""
    memory = OrderedDict()
    misses = page_writes = 0
    for page, write in zip(trace, writes):
        if page in memory:
            if recency:
                memory.move_to_end(page)
        else:
            misses += 1
            if len(memory) == frames:
                page_writes += memory.popitem(last=False)[1]
            memory[page] = False
        memory[page] |= write
    return misses, page_writes


def naive_opt(trace, frames):
    """Misses of Belady's algorithm, by its definition."""
    memory, misses = set(), 0
    for at, page in enumerate(trace):
        if page in memory:
            continue
        misses += 1
        if len(memory) == frames:
            rest = trace[at:]
            memory.remove(max(memory, key=lambda old: rest.index(old) if old in rest else len(rest)))
        memory.add(page)
    return misses


def traces():
    """Random traces of several shapes, each under its seed."""
    for seed in range(40):
        rng = random.Random(seed)
        pages, count = rng.randint(1, 60), rng.randint(1, 800)
        base = rng.choice([0, 1 << 20, (1 << 63) - 100])
        skew = rng.choice([1, 2, 4])
        trace = [base + int(pages * rng.random() ** skew) for _ in range(count)]
        yield pytest.param(trace, [rng.random() < 0.3 for _ in trace], rng.randint(1, 70), id=f"seed {seed}")


TRACES = list(traces())


@pytest.mark.parametrize("trace, writes, frames", TRACES)
def test_lru_and_fifo_are_naive_ones(trace, writes, frames):
    for policy, recency in ("lru", True), ("fifo", False):
        figures = simulate(trace, policy, frames, writes=writes)
        assert (figures["misses"], figures["page_writes"]) == naive(trace, writes, frames, recency), policy
        assert figures["page_reads"] == figures["misses"]
        assert figures["requests"] == len(trace)


@pytest.mark.parametrize("trace, writes, frames", TRACES)
def test_opt_is_belady_and_none_misses_less(trace, writes, frames):
    lines = sweep(trace, policies(), frames, writes=writes, threads=1)
    misses = {line["policy"]: line["misses"] for line in lines}
    assert misses["opt"] == naive_opt(trace, frames)
    assert misses.keys() == policies().keys()
    assert min(misses.values()) == misses["opt"]


def test_a_curve_of_lru_falls_to_the_footprint():
    rng = random.Random(5)
    trace = [rng.randrange(100) ** 2 // 50 for _ in range(5000)]
    curve = miss_curve(trace, frames=range(1, 130))
    assert curve["misses"] == sorted(curve["misses"], reverse=True)
    assert curve["misses"][-1] == curve["pages"] == len(set(trace))
    assert curve["misses"] == [naive(trace, trace, frames, True)[0] for frames in range(1, 130)]
    assert curve["miss_ratio"] == [misses / 5000 for misses in curve["misses"]]


COUNTED = ("policy", "frames", "requests", "misses", "observed", "page_reads", "page_writes", "io_time_us")


def counted(lines):
    return [{key: line[key] for key in COUNTED} for line in lines]


def test_the_command_has_the_same_figures_of_a_file(sim):
    arguments = "opt,lru,clock(insert=clear),cfclock(window=0.25),craw,wage", "64,1M,10%"
    command = sim("--trace", GCC, "--policy", arguments[0], "--frames", arguments[1], "--device-model", "nvme")
    lines = sweep(GCC, *arguments, device_model="nvme")
    assert counted(lines) == counted(command)
    assert lines[0].keys() == command[0].keys()
    live = sim("--trace", GCC, "--policy", "lru", "--frames", "64", "--sight", "live")
    assert counted([simulate(Trace(GCC), "lru", 64, sight="live")]) == counted(live)


def test_the_command_has_the_same_figures_of_an_array(sim, tmp_path):
    trace = numpy.random.default_rng(3).zipf(1.2, 200_000).astype("uint64") % 20_000
    file = tmp_path / "keys.txt"
    file.write_text("".join(f"{key}\n" for key in trace))
    command = sim("--trace", file, "--policy", "lru,s3-fifo,opt", "--frames", "1%,400")
    assert counted(sweep(trace, ["lru", "s3-fifo", "opt"], ["1%", 400])) == counted(command)
    assert counted(sweep(file, ["lru", "s3-fifo", "opt"], ["1%", 400])) == counted(command)
