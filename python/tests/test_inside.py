"""`flashvm.advise` inside a run, and outside of one."""

import sys
import textwrap

import numpy
import pytest

import flashvm

PAGES = 4096


def majors_of_one_of_two(cold):
    """Waits for flash, while an array is summed that was or was not the one advised to be cold."""
    code = f"""
        import numpy, flashvm
        one, two = (numpy.arange({PAGES} * 512) for _ in range(2))
        assert flashvm.advise({cold}, "cold") >= ({PAGES} - 1) * 4096
        more = numpy.ones({PAGES} * 512 * 5 // 2)
        assert int(one.sum()) == {PAGES * 512 * (PAGES * 512 - 1) // 2}
        """
    done = flashvm.run([sys.executable, "-c", textwrap.dedent(code)], ram="72M", prefetcher="off")
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
    assert done.totals["faults"]["soft"] + done.totals["faults"]["major"] > PAGES


def test_outside_of_a_run_the_command_is_named():
    with pytest.raises(flashvm.Error, match="python -m flashvm run --ram"):
        flashvm.advise(numpy.zeros(10_000), "cold")


@pytest.mark.parametrize(
    "values, advice, named",
    [
        (numpy.zeros(3), "pin", "'pin'.*'willneed', 'cold', 'pageout'"),
        (numpy.zeros((4, 4))[:, 1], "cold", "strides.*gaps"),
        (b"bytes", "cold", "bytes is read-only"),
        ([1, 2], "cold", "list.*numpy"),
    ],
)
def test_bad_values_are_named_with_a_remedy(values, advice, named):
    with pytest.raises(ValueError, match=named):
        flashvm.advise(values, advice)
