"""`flashvm.heap` against plain dicts and lists, and against `kill -9`."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest

import flashvm


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.heap"


def plain(value):
    """A copy without the heap's types."""
    if isinstance(value, flashvm.heap.Dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, flashvm.heap.List):
        return [plain(item) for item in value]
    return value


VALUES = {
    "none": None,
    "truth": True,
    "number": -7,
    "large": 1 << 200,
    "negative": -(1 << 63) - 1,
    "float": 0.1,
    "infinite": float("inf"),
    "text": "a text, \u00e4\u00f6\u00fc \U0001f600",
    "bytes": bytes(range(256)),
    "list": [1, [2, [3, []]], {"deep": [None]}],
    "dict": {"a": {}, 3: "three", b"key": [b""]},
    "": "an empty key",
}


def test_values_come_back_as_they_were(path):
    with flashvm.heap.open(path, size="8M") as heap, heap.commit() as root:
        for key, value in VALUES.items():
            root[key] = value
        root.update(more=list(range(2000)))
    with flashvm.heap.open(path) as heap:
        assert plain(heap.root) == {**VALUES, "more": list(range(2000))}
        assert all(type(heap.root[key]) is type(value) for key, value in VALUES.items() if type(value) not in (list, dict))
        assert heap.used_bytes > 0


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(12.0).reshape(3, 4),
        numpy.array([], "i2"),
        numpy.arange(60).reshape(3, 4, 5)[:, ::2].T,
        numpy.array([True, False]),
        numpy.array(["ab", "cde"]),
        numpy.array(["2026-01-01"], "M8[D]"),
        numpy.array([1, 2], ">i4"),
    ],
)
def test_arrays_come_back_as_they_were(path, array):
    with flashvm.heap.open(path, size="8M") as heap:
        with heap.commit() as root:
            root["array"] = array
            root["scalar"] = numpy.float32(1.5)
        found = heap.root["array"]
        assert found.dtype == array.dtype and found.shape == array.shape and (found == array).all()
        assert heap.root["scalar"] == 1.5
        found[...] = found[::-1]


@pytest.mark.parametrize("seed", range(int(os.environ.get("FLASHVM_SEED", 0)), int(os.environ.get("FLASHVM_SEED", 7)) + 1))
def test_changes_against_plain_dicts_and_lists(path, seed):
    chance = random.Random(seed)
    heap = flashvm.heap.open(path, size="16M")
    committed = {"dict": {}, "list": []}
    with heap.commit() as root:
        root.update(committed)

    def value():
        return chance.choice([chance.randrange(1 << 70), "text" * chance.randrange(9), None, [1, 2], {"k": 1.5}, b"bytes"])

    def change(root):
        one, many = root["dict"], root["list"]
        match chance.randrange(10):
            case 0 | 1:
                one[chance.choice(["a", "b", 3, 17, b"c"])] = value()
            case 2 if one:
                del one[chance.choice(sorted(one, key=str))]
            case 3 | 4:
                many.append(value())
            case 5 if many:
                many[chance.randrange(-len(many), len(many))] = value()
            case 6:
                many.insert(chance.randrange(-9, 9), value())
            case 7 if many:
                many.pop(chance.randrange(-len(many), len(many)))
            case 8 if many:
                del many[chance.randrange(len(many)) :: 3]
            case 9:
                many.extend([value(), value()])

    for turn in range(200):
        copy = {"dict": dict(plain(committed["dict"])), "list": list(committed["list"])}
        state = chance.getstate()
        fails = chance.randrange(8) == 0
        state = chance.getstate()
        try:
            with heap.commit() as root:
                for _ in range(6):
                    change(root)
                if fails:
                    raise KeyError("on purpose")
        except KeyError:
            assert fails, f"seed {seed}, turn {turn}"
        else:
            chance.setstate(state)
            for _ in range(6):
                change(copy)
            committed = copy
        assert plain(heap.root) == committed, f"seed {seed}, turn {turn}"
        if chance.randrange(20) == 0:
            heap.close()
            heap = flashvm.heap.open(path)
    heap.close()


def test_one_object_in_two_places(path):
    with flashvm.heap.open(path, size="8M") as heap:
        with heap.commit() as root:
            root["one"] = [1]
            root["two"] = root["one"]
            root["two"].append(2)
        assert plain(heap.root["one"]) == [1, 2] and heap.root["one"] == heap.root["two"]
        with heap.commit() as root:
            root["one"].append(root["one"])
        assert heap.root["one"][2] == heap.root["one"]


CRASHER = """
import sys, flashvm
with flashvm.heap.open(sys.argv[1], size="16M") as heap:
    turn = heap.root.get("turn", 0)
    while True:
        turn += 1
        with heap.commit() as root:
            root["turn"] = turn
            root.setdefault("list", []).append(turn)
            root.setdefault("dict", {})[turn % 50] = {"turn": turn, "text": str(turn) * 20}
        print(turn, flush=True)
"""


def test_a_killed_process_loses_no_commit(path):
    last = 0
    for round in range(6):
        process = subprocess.Popen([sys.executable, "-c", CRASHER, path], stdout=subprocess.PIPE, text=True)
        for _ in range(20 + 7 * round):
            told = int(process.stdout.readline())
        time.sleep(0.003 * round)
        os.kill(process.pid, signal.SIGKILL)
        told = int((process.communicate()[0].split() or [told])[-1])
        with flashvm.heap.open(path) as heap:
            root = plain(heap.root)
        # What was told is there; one commit more may be.
        assert told <= root["turn"] <= told + 1 and root["turn"] > last
        last = root["turn"]
        assert root["list"] == list(range(1, last + 1))
        assert root["dict"] == {
            turn % 50: {"turn": turn, "text": str(turn) * 20} for turn in range(max(1, last - 49), last + 1)
        }


def test_two_threads_change_in_turn(path):
    with flashvm.heap.open(path, size="16M") as heap:
        with heap.commit() as root:
            root["count"] = 0

        def add():
            for _ in range(50):
                with heap.commit() as root:
                    root["count"] += 1

        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert heap.root["count"] == 100


def test_a_full_heap_keeps_the_last_commit(path):
    with flashvm.heap.open(path, size="2M") as heap:
        with heap.commit() as root:
            root["kept"] = 1
        with pytest.raises(MemoryError, match="full"):
            with heap.commit() as root:
                root["kept"] = 2
                root["large"] = [bytes(1 << 20) for _ in range(8)]
        assert plain(heap.root) == {"kept": 1}


@pytest.mark.parametrize(
    "change, kind, named",
    [
        (lambda root: root.__setitem__("a", {1, 2}), TypeError, "type set.*None, bool, int"),
        (lambda root: root.__setitem__("a", (1,)), TypeError, "list.value."),
        (lambda root: root.__setitem__(1.5, 1), TypeError, "key of type float"),
        (lambda root: root.__setitem__(True, 1), TypeError, "bool"),
        (lambda root: root.__setitem__(1 << 64, 1), ValueError, "64 bits"),
        (lambda root: root.__setitem__("a", numpy.array([object()])), TypeError, "array of object"),
        (lambda root: root["missing"], KeyError, "missing"),
        (lambda root: root["list"][5], IndexError, "range"),
        (lambda root: root["list"].__delitem__(-9), IndexError, "range"),
    ],
)
def test_bad_changes_name_the_remedy_and_undo_all(path, change, kind, named):
    with flashvm.heap.open(path, size="8M") as heap:
        with heap.commit() as root:
            root["list"] = [1]
        with pytest.raises(kind, match=named):
            with heap.commit() as root:
                root["list"].append(2)
                change(root)
        assert plain(heap.root) == {"list": [1]}


def test_circles_and_other_heaps_are_refused(path, tmp_path):
    circle = []
    circle.append(circle)
    with flashvm.heap.open(path, size="8M") as heap, flashvm.heap.open(tmp_path / "other", size="8M") as other:
        with other.commit() as root:
            root["list"] = [1]
        with pytest.raises((ValueError, RecursionError)), heap.commit() as root:
            root["circle"] = circle
        with pytest.raises(ValueError, match="another heap"), heap.commit() as root:
            root["list"] = other.root["list"]


def test_refusals(path, tmp_path):
    with pytest.raises(OSError, match="No such file"):
        flashvm.heap.open(path)
    for size in "0", "many", "-5", "1T", "":
        with pytest.raises(ValueError, match="size="):
            flashvm.heap.open(path, size=size)
    with pytest.raises(ValueError, match="too small"):
        flashvm.heap.open(path, size=1000)
    assert not path.exists()
    (tmp_path / "text").write_text("no heap" * 1000)
    with pytest.raises(flashvm.Error, match="not a gordon heap"):
        flashvm.heap.open(tmp_path / "text")
    heap = flashvm.heap.open(path, size="8M")
    with pytest.raises(flashvm.Error, match="in use by another process"):
        flashvm.heap.open(path)
    with pytest.raises(flashvm.Error, match="outside of a commit"):
        heap.root["a"] = 1
    with pytest.raises(flashvm.Error, match="inside of commit"), heap.commit(), heap.commit():
        pass
    root = heap.root
    with pytest.warns(DeprecationWarning) if sys.version_info >= (3, 12) else nothing():
        forked = multiprocessing.get_context("fork").Process(target=_exit_with_refusal, args=(heap,))
        forked.start()
    forked.join()
    assert forked.exitcode == 7
    heap.close()
    heap.close()
    with pytest.raises(flashvm.Error, match="the heap is closed"):
        len(root)


def nothing():
    import contextlib

    return contextlib.nullcontext()


def _exit_with_refusal(heap):
    try:
        heap.root
    except flashvm.Error as error:
        os._exit(7 if "fork" in str(error) else 1)
    os._exit(2)


def test_a_heap_is_used_under_flashvm(path):
    code = """
        import sys, flashvm
        with flashvm.heap.open(sys.argv[1], size="64M") as heap, heap.commit() as root:
            root["squares"] = [i * i for i in range(100_000)]
        ballast = bytearray(64 << 20)
        with flashvm.heap.open(sys.argv[1]) as heap:
            assert sum(heap.root["squares"]) == sum(i * i for i in range(100_000))
        """
    done = flashvm.run([sys.executable, "-c", textwrap.dedent(code), path], ram="64M")
    assert done.returncode == 0


def exported(value):
    """What the export of a value is."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, list):
        return [exported(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: exported(item) for key, item in value.items()}
        in_order = sorted(value, key=lambda key: ([int, str, bytes].index(type(key)), key))
        return [[exported(key), exported(value[key])] for key in in_order]
    return value


def test_a_heap_is_exported(path, command):
    with flashvm.heap.open(path, size="8M") as heap:
        with heap.commit() as root:
            root.update(VALUES, many=list(range(2000)), names={f"n{number:04}": number for number in range(500)})
            root["array"] = numpy.arange(4, dtype="<f8").reshape(2, 2)
            root["again"] = root["list"]
        # An open heap is exported as of its last commit.
        tree = json.loads(subprocess.run([command, "heap", "export", "--root", path], check=True, capture_output=True).stdout)
    array = tree.pop("array")
    assert (array["kind"], json.loads(array["shape"])) == ("<f8", [2, 2])
    assert numpy.frombuffer(bytes.fromhex(array["data"]["$bytes"])).tolist() == [0, 1, 2, 3]
    assert tree.pop("again") == tree["list"]
    assert tree.pop("many") == list(range(2000))
    assert tree.pop("names") == {f"n{number:04}": number for number in range(500)}
    assert tree == exported(VALUES)
    lines = subprocess.run([command, "heap", "export", path], check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in lines.splitlines()]
    assert [line["id"] for line in lines] == list(range(len(lines)))
    assert lines[0]["type"] == "Var<Map<Key, Value>>"
    info = json.loads(subprocess.run([command, "heap", "info", "--json", path], check=True, capture_output=True).stdout)
    assert sum(kind["objects"] for kind in info["types"]) == len(lines)


def test_a_circle_is_exported_by_lines_alone(path, command):
    with flashvm.heap.open(path, size="1M") as heap, heap.commit() as root:
        root["list"] = []
        root["list"].append(root["list"])
    refused = subprocess.run([command, "heap", "export", "--root", path], capture_output=True, text=True)
    assert refused.returncode == 2 and "contains itself" in refused.stderr and not refused.stdout
    lines = subprocess.run([command, "heap", "export", path], check=True, capture_output=True, text=True).stdout
    assert len(lines.splitlines()) >= 4


def test_backups_and_growth(path, tmp_path):
    copy = tmp_path / "copy.heap"
    with flashvm.heap.open(path, size="1M") as heap:
        with heap.commit() as root:
            root["number"] = 1
        with heap.commit() as root:
            root["number"] = 2
            heap.backup(copy)
        with pytest.raises(OSError, match="exists"):
            heap.backup(copy)
        with pytest.raises(MemoryError), heap.commit() as root:
            root["bytes"] = bytes(1 << 20)
        with pytest.raises(ValueError, match="this heap can have 1048576 to 78184448 bytes"):
            heap.grow("512K")
        with pytest.raises(ValueError, match="size="):
            heap.grow("much")
        assert heap.grow("8M") == 8 << 20
        with heap.commit() as root:
            root["bytes"] = bytes(1 << 20)
        assert heap.root["number"] == 2
    with flashvm.heap.open(copy) as heap:
        assert dict(heap.root) == {"number": 1}, "changes that were not committed are not in it"
    with flashvm.heap.open(path) as heap:
        assert len(heap.root["bytes"]) == 1 << 20
