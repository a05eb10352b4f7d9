"""What a simulation is to the interpreter: other threads run, Ctrl-C ends it, workers of any kind can have it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy
import pytest
from conftest import GCC

from flashvm.sim import Trace, simulate, sweep


@pytest.fixture(scope="module")
def trace():
    return Trace(numpy.random.default_rng(1).integers(0, 50_000, 3_000_000))


def longest_pause(trace):
    """Runs a sweep in another thread. The longest pause of this thread meanwhile, as a share of the sweep's time."""
    begun, done = threading.Event(), threading.Event()
    took = []

    def work():
        begun.set()
        start = time.perf_counter()
        sweep(trace, "arc", [1000, 2000, 3000], threads=1)
        took.append(time.perf_counter() - start)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    longest, last = 0, time.perf_counter()
    while not done.is_set():
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    thread.join()
    return longest / took[0]


def test_other_threads_run_meanwhile(trace):
    # A sweep that kept the interpreter's lock would be one long pause each time. A busy machine makes one now and then.
    assert any(longest_pause(trace) < 0.5 for _ in range(3))


class Alarm(Exception):
    pass


def test_a_signal_handlers_exception_ends_a_sweep(trace):
    def handler(number, frame):
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Alarm):
            # Minutes of work.
            sweep(trace, "arc", range(1000, 2000), threads=1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert simulate([1, 2], "lru", 1)["misses"] == 2


def test_ctrl_c_ends_the_reading_of_a_trace(tmp_path):
    pipe = tmp_path / "keys"
    os.mkfifo(pipe)
    code = "import sys, flashvm.sim; flashvm.sim.Trace(sys.argv[1], format='keys')"
    # The tests may run with SIGINT ignored, as under nohup; the interpreter of the reader must not inherit that.
    as_in_a_terminal = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    reader = subprocess.Popen(
        [sys.executable, "-c", code, pipe], stderr=subprocess.PIPE, preexec_fn=as_in_a_terminal
    )
    with open(pipe, "wb", buffering=0) as file:
        file.write(b"1\n" * 10_000)
        reader.send_signal(signal.SIGINT)
        with pytest.raises(BrokenPipeError):
            # So many that it has half a minute to end.
            for _ in range(30_000):
                file.write(b"1\n" * 10_000)
    assert b"KeyboardInterrupt" in reader.communicate()[1]
    assert reader.returncode == -signal.SIGINT


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_map_over_traces(method):
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        arrays = [numpy.arange(1000) % modulus for modulus in (10, 20, 30)]
        traces = [*arrays, Trace(arrays[0]), GCC, Trace(GCC)]
        results = pool.map(partial(simulate, policy="lru", frames=15), traces)
        misses = [result["misses"] for result in results]
    assert misses == [simulate(trace, "lru", 15)["misses"] for trace in traces]
    assert misses[:4] == [10, 1000, 1000, 10]
