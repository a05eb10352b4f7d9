"""`flashvm.start`: a pager for a process that runs already. Each test runs in a process of its own: there a pager stays."""

import json
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import flashvm


def process(text, *arguments):
    """Runs a script without ``flashvm run``."""
    words = [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


def said(text, *arguments):
    """What it prints."""
    done = process(text, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(path):
    """The statistics in a file, once it is there."""
    until = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < until
        time.sleep(0.05)
    return json.loads(path.read_text())


def test_threads_that_run_already_use_more_than_the_budget(tmp_path):
    out = said(
        """
        import sys, threading
        filled, sums, arrays = threading.Event(), [], []

        def work(part):
            filled.wait()
            sums.append(int(arrays[0][part::4].sum()))

        threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        import flashvm, numpy
        flashvm.start("32M", compress="off", stats=sys.argv[1])
        arrays.append(flashvm.empty(16 << 20, dtype="i8"))
        arrays[0][...] = numpy.arange(16 << 20)
        filled.set()
        for thread in threads:
            thread.join()
        now = flashvm.stats()
        assert sum(sums) == (16 << 20) * ((16 << 20) - 1) // 2
        assert now["resident_bytes_max"] <= now["budget_bytes"] == 32 << 20
        print(now["major"] > 0, now["written_bytes"] > 64 << 20)
        """,
        tmp_path / "stats.json",
    )
    assert out == "True True\n"
    # The run ends after the process, and writes its statistics then.
    stats = wait_for(tmp_path / "stats.json")
    assert stats["totals"]["processes"] == 1 and stats["totals"]["faults"]["major"] > 0


def test_forked_children_have_the_arrays_and_programs_have_no_pager():
    out = said(
        """
        import multiprocessing, os, subprocess, sys, flashvm
        flashvm.start("32M")
        array = flashvm.full(8 << 20, 2.0)

        def child(pipe):
            array[:100] = 1.0
            pipe.send((array.sum(), flashvm.stats()["budget_bytes"]))

        fork = multiprocessing.get_context("fork")
        ours, theirs = fork.Pipe()
        worker = fork.Process(target=child, args=(theirs,))
        worker.start()
        assert ours.recv() == (2.0 * (8 << 20) - 100, 32 << 20)
        worker.join()
        assert worker.exitcode == 0 and array.sum() == 2.0 * (8 << 20)
        text = "import flashvm; flashvm.stats()"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        assert "python -m flashvm run" in done.stderr, done
        try:
            os.wait()
        except ChildProcessError:
            print("no child is left")
        """
    )
    assert out == "no child is left\n"


def test_a_with_starts_it_once():
    out = said(
        """
        import flashvm, numpy
        for _ in range(2):
            with flashvm.memory("24M"):
                array = numpy.ones(8 << 20)
                array *= 3
        assert array.sum() == 3 * (8 << 20) and flashvm.advise(array, "pageout") > 60 << 20
        assert flashvm.advise(array[: 1 << 19], "pin") >= 4 << 20
        assert flashvm.stats()["locked_bytes"] >= 4 << 20
        del array
        for again in lambda: flashvm.start("24M"), lambda: flashvm.memory("25M").__enter__():
            try:
                again()
            except flashvm.Error as error:
                print(error)
        """
    )
    first, second = out.splitlines()
    assert first == "this process has a pager already: leave flashvm.start out"
    assert second == f"ram='25M': this process has a pager with a budget of {24 << 20} bytes already: leave it out"


def test_a_subinterpreter_has_the_same_pager(tmp_path):
    name = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"
    pytest.importorskip(name)
    inner = tmp_path / "inner.py"
    inner.write_text(
        textwrap.dedent(
            """
            from flashvm import Error, start, stats
            assert stats()["budget_bytes"] == 24 << 20
            try:
                start("24M")
            except Error as error:
                print(error, flush=True)
            """
        )
    )
    out = said(
        f"""
        import {name} as interpreters
        import sys, flashvm
        flashvm.start("24M")
        one = interpreters.create()
        text = f"import sys; sys.path[:] = {{sys.path!r}}; exec(open(sys.argv[1]).read())".replace("sys.argv[1]", repr(sys.argv[1]))
        failed = interpreters.run_string(one, text)
        assert failed is None, failed
        assert flashvm.stats()["budget_bytes"] == 24 << 20
        """,
        inner,
    )
    assert out == "this process has a pager already: leave flashvm.start out\n"


def test_an_array_grows_and_is_freed():
    out = said(
        """
        import gc, flashvm, numpy
        with flashvm.memory("24M"):
            array = numpy.arange(4 << 20)
            small = numpy.arange(1000)
            array.resize(6 << 20, refcheck=False)
            small.resize(2000, refcheck=False)
        assert array[: 4 << 20].sum() == (4 << 20) * ((4 << 20) - 1) // 2 and not array[4 << 20:].any()
        assert small.sum() == 999 * 500
        del array, small
        gc.collect()
        now = flashvm.stats()
        print(now["flash_bytes"] + now["pool_bytes"])
        """
    )
    assert out == "0\n"


@pytest.mark.parametrize(
    "options, named",
    [
        (dict(ram="much"), "'much'"),
        (dict(ram="64M", fault="inline"), "--fault.*flashvm run"),
        (dict(ram="64M", select="all"), "--select.*leave it out"),
        (dict(ram="64M", granularity=512), "--granularity 512"),
        (dict(ram="64M", flash="/nowhere"), "/nowhere"),
        (dict(rum="64M"), "'--rum'.*'--ram'"),
    ],
)
def test_refusals_are_exceptions_and_leave_no_pager(options, named):
    with pytest.raises(flashvm.Refused, match=named) as raised:
        flashvm.start(**options)
    assert raised.value.returncode == 2
    with pytest.raises(flashvm.Error, match=r"flashvm\.start\(SIZE\)"):
        flashvm.stats()


def test_a_process_whose_run_is_killed_says_why():
    done = process(
        """
        import os, signal, flashvm
        flashvm.start("24M")
        array = flashvm.full(8 << 20, 2.0)

        def pipes(pid):
            found = set()
            for fd in os.listdir(f"/proc/{pid}/fd"):
                try:
                    found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
                except OSError:
                    pass
            return {name for name in found if name.startswith("pipe:")}

        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                name = open(f"/proc/{pid}/comm").read().strip()
                if name == "flashvm" and pipes(pid) & pipes("self"):
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass
        array.sum()
        signal.pause()
        """
    )
    assert done.returncode == -signal.SIGABRT, done.stderr
    assert "the supervisor (flashvm run) has died" in done.stderr
