"""Programs under `flashvm.run`: contents, exit codes, statistics, refusals."""

import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import flashvm

RAM = 48 << 20


def python(code, *arguments, **options):
    program = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return flashvm.run(program, **{"ram": RAM, "stdout": subprocess.PIPE, **options})


def test_a_dict_larger_than_ram_keeps_its_contents():
    done = python(
        """
        table = {number: str(number) * 12 for number in range(600_000)}
        for number in range(0, 600_000, 3):
            del table[number]
        assert all(table[number] == str(number) * 12 for number in table)
        print(len(table), sum(map(len, table.values())))
        """
    )
    numbers = [number for number in range(600_000) if number % 3]
    assert done.stdout.split() == [b"%d" % len(numbers), b"%d" % sum(12 * len(str(n)) for n in numbers)]
    check_paged(done)


def test_an_array_larger_than_ram_keeps_its_contents():
    done = python(
        """
        import numpy
        array = numpy.arange(12 << 20, dtype="int64").reshape(-1, 1024)
        array *= 3
        rows = array.shape[0]
        assert (array.sum(axis=0) == 3 * rows * (numpy.arange(1024) + (rows - 1) * 512)).all()
        array[:, ::2] = array[:, 1::2]
        print(int(array.sum()))
        """
    )
    odd = sum(range(1, 12 << 20, 2))
    assert int(done.stdout) == 2 * 3 * odd
    check_paged(done)


def check_paged(done):
    """The program was larger than its RAM and stayed within it."""
    assert done.returncode == 0
    # The pool takes most of these pages compressed, so few of them are written to flash.
    assert done.totals["evicted"]["dirty"] > 1000 and done.totals["compressed"]["pages"] > 1000
    assert done.totals["faults"]["major"] > 10
    assert done.totals["resident_pages_max"] * 4096 <= RAM
    assert done.totals["budget_overruns"] == 0
    assert len(done.stats["processes"]) == done.totals["processes"] == 1
    assert pickle.loads(pickle.dumps(done)) == done


def test_exit_codes_signals_and_streams_are_the_programs():
    assert python("import sys; sys.exit(2)").returncode == 2
    assert python("import os; os.kill(os.getpid(), 15)").returncode == -signal.SIGTERM
    done = python("import sys; sys.stdout.write(sys.stdin.read()[::-1])", input=b"drow")
    assert done.stdout == b"word"
    done = python("import os, sys; print(os.getcwd(), os.environ['A'], sys.argv[1:])", "x y", cwd="/", env={"A": "b"})
    assert done.stdout == b"/ b ['x y']\n"
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        python("raise SystemExit(3)").check_returncode()
    with pytest.raises(subprocess.TimeoutExpired):
        python("import time; time.sleep(600)", timeout=1)


def test_options_reach_the_run():
    done = python("pass", policy="clock(insert=clear)", preset="flashvm", zero_sharing=False, no_uring=True)
    assert (done.totals["policy"], done.totals["preset"]) == ("clock(insert=clear)", "flashvm")


@pytest.mark.parametrize(
    "program, options, returncode, named",
    [
        (["true"], dict(ram="much"), 2, "--ram.*'much'"),
        (["true"], dict(ram=1), 2, "--ram.*4 MiB|--ram.*4M"),
        (["true"], dict(rum="1G"), 2, "'--rum'.*'--ram'"),
        (["true"], dict(zero_sharing=5), 2, "'5' is neither on nor off"),
        (["true"], dict(flash="/proc"), 2, "/proc"),
        (["/nowhere/at/all"], {}, 127, "/nowhere/at/all.*check the path"),
        (["/etc/passwd"], {}, 126, "/etc/passwd.*executable"),
    ],
)
def test_refusals_are_exceptions(program, options, returncode, named):
    with pytest.raises(flashvm.Refused, match=named) as raised:
        flashvm.run(program, **options)
    assert raised.value.returncode == returncode
    assert isinstance(raised.value, ValueError) and isinstance(raised.value, flashvm.Error)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.returncode) == (str(raised.value), returncode)


def test_values_that_are_no_programs_are_named():
    for program, named in [("sort x", "'sort x'.*pass a list"), ([], r"\[\].*pass one"), (Path("x"), "pass a list")]:
        with pytest.raises(ValueError, match=named):
            flashvm.run(program)
    with pytest.raises(ValueError, match="stats='x.json'.*leave it out"):
        flashvm.run(["true"], stats="x.json")
