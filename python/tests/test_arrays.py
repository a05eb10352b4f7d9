"""Arrays of any type and layout are the same trace; what is none is refused with value and remedy."""

import array
import pickle
import sys

import numpy
import pytest

from flashvm import sim
from flashvm.sim import Trace, simulate

PAGES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]


def figures(trace, **options):
    result = simulate(trace, "lru", 4, **options)
    return {key: result[key] for key in ("requests", "misses", "page_writes")}


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_every_type_of_integer_is_taken(dtype):
    assert figures(numpy.array(PAGES, dtype)) == figures(PAGES)


def test_every_layout_is_taken():
    strided = numpy.zeros((len(PAGES), 3), "int64")
    strided[:, 1] = PAGES
    fortran = numpy.asfortranarray(numpy.array([PAGES, PAGES], "int32"))
    for other in [
        strided[:, 1],
        fortran[1],
        numpy.array(PAGES[::-1])[::-1],
        array.array("H", PAGES),
        memoryview(array.array("q", PAGES)),
        tuple(PAGES),
        iter(PAGES),
    ]:
        assert figures(other) == figures(PAGES), repr(other)
    read_only = numpy.array(PAGES)
    read_only.flags.writeable = False
    assert figures(read_only) == figures(PAGES)


def test_columns_of_pandas_are_taken():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"page": PAGES, "write": [True, False, False] * 5})
    assert figures(frame.page, writes=frame.write) == figures(PAGES, writes=[1, 0, 0] * 5)


def test_a_long_array_is_read_across_chunks():
    rng = numpy.random.default_rng(1)
    pages, writes = rng.integers(0, 500, 200_001), rng.random(200_001) < 0.5
    trace = Trace(pages, writes=writes)
    assert (len(trace), trace.pages) == (200_001, 500)
    assert trace.pages_written == len(numpy.unique(pages[writes]))
    pages[150_000] = -8
    with pytest.raises(ValueError, match=r"trace\[150000\] is -8"):
        Trace(pages)


def test_byte_addresses_are_of_pages_of_4_kib():
    trace = Trace([0, 4095, 4096, 1 << 40], unit="bytes")
    assert (len(trace), trace.pages) == (4, 3)
    assert Trace([2**64 - 1, 0, 2**63]).pages == 3


@pytest.mark.parametrize(
    "change, named",
    [
        (dict(trace=[1, -2]), r"trace\[1\] is -2.*0 or more"),
        (dict(trace=[1.5]), r"trace=\[1.5\].*integers"),
        (dict(trace=[2**64]), "18446744073709551616.*integers"),
        (dict(trace=numpy.zeros(3)), "'d'.*astype"),
        (dict(trace=numpy.zeros(3, bool)), r"'\?'.*astype"),
        (dict(trace=numpy.zeros(3, ">i8")), "'>q'.*astype"),
        (dict(trace=numpy.zeros(3, "M8[s]")), "trace: .*astype"),
        (dict(trace=numpy.zeros((3, 3), int)), r"2 dimensions.*ravel"),
        (dict(trace=numpy.int64(3)), "0 dimensions"),
        (dict(trace=[]), "empty.*one reference or more"),
        (dict(trace=7), "trace=7.*integers"),
        (dict(trace=None), "trace=None.*integers"),
        (dict(writes=[True]), "1 writes for 3 references"),
        (dict(writes=numpy.zeros(3)), "writes of items 'd'.*bool"),
        (dict(unit="words"), "unit='words'.*'pages' or 'bytes'"),
        (dict(format="keys"), "format='keys'.*leave it out"),
        (dict(policy="lfu"), "'lfu'.*known are opt, fifo, lru"),
        (dict(policy="clock(insert=x)"), "insert=x: write insert="),
        (dict(policy="lru,fifo"), r"'lru,fifo'.*sweep\(\)"),
        (dict(policy=None), "'None'.*known are"),
        (dict(frames=0), "^0 of memory.*one frame or more"),
        (dict(frames=-4), "'-4'.*write frames"),
        (dict(frames=2.5), "'2.5'.*write frames"),
        (dict(frames="1%"), "1% of memory.*footprint of 3 pages"),
        (dict(frames=[]), r"frames=\[\].*one at least"),
        (dict(device_model="tape"), "'tape'.*known are seagate-7200"),
        (dict(device_model=3), "device_model=3.*seagate-7200"),
        (dict(sight="half"), "sight='half'.*'full' or 'live'"),
    ],
)
def test_bad_values_are_named_with_a_remedy(change, named):
    good = dict(trace=[1, 2, 3], policy="lru", frames=2)
    assert simulate(**good)["misses"] == 3
    with pytest.raises(ValueError, match=named):
        simulate(**{**good, **change})


def test_bad_values_of_the_others_are_named():
    for threads in 0, 1025, "two", 1.5:
        with pytest.raises(ValueError, match=f"threads={threads!r}.*1 to 1024"):
            sim.sweep([1, 2], "lru", 1, threads=threads)
    with pytest.raises(ValueError, match=r"policy='lru,fifo'.*sweep\(\)"):
        sim.miss_curve([1, 2], "lru,fifo")
    with pytest.raises(ValueError, match="read already.*Trace()"):
        sim.simulate(Trace([1, 2]), "lru", 1, unit="bytes")


def test_files_that_are_no_traces_are_named(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("neither\nnor\n")
    with pytest.raises(FileNotFoundError, match="name a trace") as raised:
        Trace(tmp_path / "nothing")
    assert raised.value.filename == str(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError, match="name a trace"):
        Trace(str(tmp_path))
    with pytest.raises(ValueError, match="words.txt: .*name its format with format: "):
        Trace(file)
    with pytest.raises(ValueError, match="words.txt: line 1: .*neither"):
        Trace(file, format="keys")
    with pytest.raises(ValueError, match="'cvs'.*known are flashvm, lackey"):
        Trace(file, format="cvs")
    with pytest.raises(ValueError, match="words.txt: .*leave writes and unit out"):
        Trace(file, unit="bytes")


def test_traces_and_results_are_pickled(tmp_path):
    file = tmp_path / "keys.txt"
    file.write_text("".join(f"{page}\n" for page in PAGES))
    for trace in Trace(file), Trace(numpy.array(PAGES)), Trace(PAGES, writes=[True] * len(PAGES), unit="bytes"):
        copy = pickle.loads(pickle.dumps(trace))
        assert repr(copy) == repr(trace) and figures(copy) == figures(trace)
    result = simulate(PAGES, "lru", 3)
    assert type(result) is dict and pickle.loads(pickle.dumps(result)) == result


def test_results_are_frames_of_pandas():
    pandas = pytest.importorskip("pandas")
    lines = sim.sweep(PAGES, "lru,opt", [2, 4])
    frame = sim.frame(lines)
    assert isinstance(frame, pandas.DataFrame)
    assert frame.to_dict("records") == lines
    curve = sim.miss_curve(PAGES)
    frame = sim.frame(curve)
    assert frame[["frames", "misses", "miss_ratio"]].to_dict("list") == {key: curve[key] for key in frame.columns[4:]}
    assert set(frame.policy) == {"lru"}


def test_frames_without_pandas_name_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        sim.frame([])
