"""`flashvm.advise` inside a run, and outside of one."""

import json
import re
import subprocess
import sys
import textwrap

import numpy
import pytest

import flashvm

PAGES = 4096


def majors_of_one_of_two(cold):
    """Waits for flash, while an array is summed that was or was not the one advised to be cold. Compressed, both would fit into RAM."""
    code = f"""
        import numpy, flashvm
        one, two = (numpy.arange({PAGES} * 512) for _ in range(2))
        assert flashvm.advise({cold}, "cold") >= ({PAGES} - 1) * 4096
        more = numpy.ones({PAGES} * 512 * 5 // 2)
        assert int(one.sum()) == {PAGES * 512 * (PAGES * 512 - 1) // 2}
        """
    done = flashvm.run([sys.executable, "-c", textwrap.dedent(code)], ram="72M", prefetcher="off", compress="off")
    assert done.returncode == 0
    return done.totals["faults"]["major"]


def test_the_cold_array_is_evicted_first():
    assert majors_of_one_of_two("two") < majors_of_one_of_two("one") / 2


def test_advice_moves_pages_and_keeps_contents():
    code = f"""
        import numpy, flashvm
        array = numpy.arange({PAGES} * 512)
        for advice in "pageout", "willneed", "pageout", "willneed", "cold":
            assert flashvm.advise(array, advice) >= ({PAGES} - 1) * 4096
            assert int(array.sum()) == {PAGES * 512 * (PAGES * 512 - 1) // 2}
        assert flashvm.advise(array[:8], "cold") == 0
        assert flashvm.advise(array[:8], "willneed") >= 4096
        assert flashvm.advise(bytearray(1 << 20), "cold") >= 1 << 19
        """
    done = flashvm.run([sys.executable, "-c", textwrap.dedent(code)], ram="96M")
    assert done.returncode == 0
    came_back = [done.totals["faults"]["soft"], done.totals["faults"]["major"], done.totals["compressed"]["faults"]]
    assert sum(came_back) + done.totals["prefetch"]["used"] > PAGES


def test_a_pinned_array_does_not_fault():
    code = f"""
        import numpy, flashvm
        with flashvm.memory():
            pinned, other = numpy.arange({PAGES} * 512), numpy.zeros({PAGES} * 512 * 6)
        def thrash():
            other[::512] += 1
            other[::-512] += 1
        def faults():
            before = flashvm.stats()
            assert int(pinned.sum()) == {PAGES * 512 * (PAGES * 512 - 1) // 2}
            return flashvm.stats()["major"] + flashvm.stats()["pool"] - before["major"] - before["pool"]
        thrash()
        assert faults() > {PAGES // 16}
        size = flashvm.advise(pinned, "pin")
        assert size >= {PAGES} * 4096 and flashvm.stats()["locked_bytes"] == size
        for _ in range(2):
            thrash()
            assert faults() <= 16
        try:
            flashvm.advise(other, "pin")
        except MemoryError as error:
            assert "give the run more --ram" in str(error) and str(size) in str(error)
        else:
            raise AssertionError
        assert flashvm.advise(pinned, "unpin") == size and flashvm.stats()["locked_bytes"] == 0
        thrash()
        faults()
        """
    options = {"ram": "64M", "select": "api", "prefetcher": "off"}
    assert flashvm.run([sys.executable, "-c", textwrap.dedent(code)], **options).returncode == 0


def test_outside_of_a_run_the_command_is_named():
    with pytest.raises(flashvm.Error, match="python -m flashvm run --ram"):
        flashvm.advise(numpy.zeros(10_000), "cold")


@pytest.mark.parametrize(
    "values, advice, named",
    [
        (numpy.zeros(3), "hot", "'hot'.*'willneed', 'cold', 'pageout', 'pin', 'unpin'"),
        (numpy.zeros((4, 4))[:, 1], "cold", "strides.*gaps"),
        (b"bytes", "cold", "bytes is read-only"),
        ([1, 2], "cold", "list.*numpy"),
    ],
)
def test_bad_values_are_named_with_a_remedy(values, advice, named):
    with pytest.raises(ValueError, match=named):
        flashvm.advise(values, advice)


def inside(code, **options):
    """Runs code under flashvm, and returns what it printed."""
    done = flashvm.run([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, **{"ram": "96M", **options})
    assert done.returncode == 0
    return done, done.stdout.decode()


@pytest.mark.parametrize("options", [{}, {"fault": "protect"}, {"select": "api"}])
def test_statistics_are_those_of_the_run(options):
    done, said = inside(
        """
        import numpy, flashvm, json
        with flashvm.memory():
            array = numpy.arange(64 << 17)
        first = flashvm.stats()
        assert int(array[::512].sum()) == 512 * (1 << 13) * ((1 << 14) - 1)
        last = flashvm.stats()
        assert last["faults"] > first["faults"] and last["pool"] + last["major"] > first["pool"] + first["major"]
        assert all(last[name] >= first[name] for name in ("major", "soft", "zero", "read_bytes", "written_bytes"))
        assert last["resident_bytes"] <= last["resident_bytes_max"] <= last["budget_bytes"] == 40 << 20
        assert last["pool_bytes"] <= last["resident_bytes"]
        print(json.dumps(last))
        """,
        ram="40M",
        **options,
    )
    last = json.loads(said)
    # The program has ended since.
    assert 0 < last["faults"] <= done.totals["faults"]["total"]
    assert 0 <= last["major"] <= done.totals["faults"]["major"]
    assert 0 < last["resident_bytes_max"] <= done.totals["resident_pages_max"] * 4096
    assert last["written_bytes"] <= done.totals["bytes_written"]


def test_a_watch_calls_until_its_end():
    _, said = inside(
        """
        import time, flashvm
        seen = []
        start = time.monotonic()
        with flashvm.watch(seen.append, every=0.01):
            while len(seen) < 4:
                assert time.monotonic() - start < 60
                time.sleep(0.1)
        # The last call is the end's.
        assert len(seen) <= (time.monotonic() - start) / 0.01 + 1, len(seen)
        assert all(one["faults"] <= two["faults"] for one, two in zip(seen, seen[1:]))
        time.sleep(0.05)
        count = len(seen)
        try:
            with flashvm.watch(lambda now: now["no such figure"], every=0.01):
                time.sleep(0.1)
        except KeyError as error:
            print(count == len(seen), error)
        """
    )
    assert said == "True 'no such figure'\n"


def test_without_a_run_there_are_no_statistics():
    for call in flashvm.stats, flashvm.watch(print).__enter__:
        with pytest.raises(flashvm.Error, match="python -m flashvm run --ram"):
            call()
    with pytest.raises(ValueError, match="every=0"):
        flashvm.watch(print, every=0).__enter__()


def test_the_magic_prints_what_a_cell_cost():
    _, said = inside(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "flashvm")
        shell.run_cell_magic("flashvm", "", "import numpy; array = numpy.ones(1 << 23)")
        shell.run_line_magic("flashvm", "array.sum()")
        shell.run_line_magic("unload_ext", "flashvm")
        assert "flashvm" not in shell.magics_manager.magics["cell"]
        """,
        ram="48M",
    )
    found = re.findall(r"^flashvm: [0-9.]+ s, ([0-9,]+) faults, .* of 48.0 MiB in RAM$", said, re.M)
    assert len(found) == 2 and int(found[0].replace(",", "")) > 0
    assert "8388608.0" in said
