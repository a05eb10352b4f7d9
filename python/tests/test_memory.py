"""Arrays in managed memory: inside a run, and outside of one."""

import sys
import textwrap

import numpy
import pytest

import flashvm


def run(code, **options):
    """Runs code with 16 MiB of RAM for its arrays alone; returns the run."""
    options = {"ram": "16M", "select": "api", "flash_size": "512M", "compress": "off", **options}
    code = "import flashvm, numpy\n" + textwrap.dedent(code)
    done = flashvm.run([sys.executable, "-c", code], **options)
    assert done.returncode == 0
    return done


def test_only_the_arrays_are_paged():
    done = run(
        """
        plain = numpy.arange(8 << 20)                  # 64 MiB of the kernel's
        array = flashvm.empty((8, 1 << 20), dtype="i8")
        assert array.shape == (8, 1 << 20) and array.flags.writeable and not array.any()
        array[...] = plain.reshape(8, -1)
        assert (array == plain.reshape(8, -1)).all()
        """
    )
    faults = done.totals["faults"]
    # 16,384 pages were filled, and 12,288 of them left for flash.
    assert faults["zero"] > 100 and done.totals["bytes_written"] > 40 << 20
    assert done.totals["resident_pages_max"] <= 4096
    assert faults["total"] < 16_384 * 3


def test_without_arrays_nothing_is_paged():
    done = run("assert int(numpy.arange(8 << 20).sum()) == (8 << 20) * ((8 << 20) - 1) // 2")
    assert done.totals["faults"]["total"] == 0
    assert done.totals["resident_pages_max"] == 0


def test_arrow_computes_on_an_array_in_place():
    done = run(
        """
        import pyarrow, pyarrow.compute
        array = flashvm.full(8 << 20, 3, dtype="i8")   # 64 MiB
        column = pyarrow.array(array)
        assert pyarrow.total_allocated_bytes() == 0
        del array
        assert pyarrow.compute.sum(column).as_py() == 3 << 23
        """
    )
    assert done.totals["bytes_written"] > 40 << 20


def test_an_array_is_freed_with_its_last_view():
    run(
        """
        for _ in range(20):                            # 20 times 128 MiB of 528
            array = flashvm.full(16 << 20, 7.5)
            view = array[5:10]
            del array
            assert view.sum() == 37.5
            del view
        """
    )


def test_numpy_allocates_in_managed_memory_and_frees_there():
    done = run(
        """
        def kept():
            with flashvm.memory():
                with flashvm.memory():
                    one = numpy.ones(4 << 20)          # 32 MiB
                two = one * 2 + 1                      # and its temporary
                small = numpy.arange(10)
            return one, two, small

        for _ in range(6):
            one, two, small = kept()
            assert one.sum() == 4 << 20 and two.sum() == 3 * (4 << 20) and small.sum() == 45
            two = None
            one.resize(5 << 20, refcheck=False)
            assert one.sum() == 4 << 20
            one.resize(100, refcheck=False)
            assert one.sum() == 100
        outside = numpy.ones(8 << 20)                  # plain again
        """
    )
    assert done.totals["bytes_written"] > 100 << 20


def test_files_come_in(tmp_path):
    numpy.arange(3 << 20).tofile(tmp_path / "numbers")
    run(
        f"""
        array = flashvm.from_file({str(tmp_path / "numbers")!r}, dtype="i8")
        assert (array == numpy.arange(3 << 20)).all()
        try:
            flashvm.from_file({str(tmp_path / "numbers")!r}, dtype="V7")
            raise SystemExit("not refused")
        except ValueError as error:
            assert "numbers" in str(error) and "7" in str(error)
        """
    )


def test_children_have_the_arrays():
    run(
        """
        import multiprocessing

        def total(_):
            return int(array.sum())

        array = flashvm.full(1 << 20, 3, dtype="i8")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(total, range(4)) == [3 << 20] * 4
        """,
        ram="24M",
    )


def test_all_modes_of_faults():
    for fault in "inline", "protect", "handler":
        run(
            """
            array = flashvm.zeros(6 << 20)
            array += 1
            assert array.sum() == 6 << 20
            """,
            fault=fault,
        )


def test_the_whole_program_may_be_paged_as_well():
    run(
        """
        with flashvm.memory():
            array = numpy.ones(8 << 20)
        assert array.sum() == 8 << 20 and flashvm.empty(0).size == 0 and flashvm.zeros((3, 0, 2)).shape == (3, 0, 2)
        """,
        select="all",
        ram="96M",
    )


def test_a_full_store_is_a_memory_error():
    run(
        """
        try:
            flashvm.empty(1 << 30)
            raise SystemExit("not refused")
        except MemoryError as error:
            assert "8589934592" in str(error) and "--flash-size" in str(error)
        try:
            with flashvm.memory():
                numpy.ones(1 << 30)
            raise SystemExit("not refused")
        except MemoryError:
            pass
        assert flashvm.zeros(10).sum() == 0
        """
    )


@pytest.mark.parametrize("name, arguments", [("empty", (3,)), ("zeros", (3,)), ("full", (3, 1))])
def test_outside_of_a_run_the_command_is_named(name, arguments):
    with pytest.raises(flashvm.Error, match="python -m flashvm run --ram SIZE script.py.*--select api"):
        getattr(flashvm, name)(*arguments)


def test_numpy_is_not_redirected_outside_of_a_run():
    with pytest.raises(flashvm.Error, match="python -m flashvm run"):
        with flashvm.memory():
            raise AssertionError("entered")


def test_bad_values_are_named():
    for arguments, named in [((3, object), "object"), ((3, "f8", "K"), "'K'"), (((2, -1),), "-1")]:
        with pytest.raises(ValueError, match=named):
            flashvm.empty(*arguments)


@pytest.mark.parametrize("options, named", [({"malloc": "mimalloc"}, "--select api"), ({"granularity": "512"}, "--select api")])
def test_what_does_not_go_together(options, named):
    with pytest.raises(flashvm.Refused, match=named):
        flashvm.run([sys.executable, "-c", "pass"], ram="64M", select="api", **options)
