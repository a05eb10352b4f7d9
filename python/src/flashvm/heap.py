"""A persistent heap: dicts, lists, strings, numbers, bytes and arrays in a file, which outlive the program.

>>> import tempfile, os, flashvm
>>> path = os.path.join(tempfile.mkdtemp(), "data.heap")
>>> with flashvm.heap.open(path, size="16M") as heap:
...     with heap.commit() as root:
...         root["flights"] = {"LH 400": [1, 2, 3]}
...     with heap.commit() as root:
...         root["flights"]["LH 400"].append(4)
>>> with flashvm.heap.open(path) as heap:
...     list(heap.root["flights"]["LH 400"])
[1, 2, 3, 4]

What is reachable from the root is persistent; a commit makes all changes since the one before stable at once. After a
crash, `kill -9` or a power cut the heap is as of its last commit. It is the heap of the crate `gordon`, after Moore, Hicks and
Nettles, *General-Purpose Persistence Using Flash Memory* (1997).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, MutableMapping, MutableSequence
from typing import TYPE_CHECKING, Any

from . import _native
from ._errors import Error

if TYPE_CHECKING:
    import numpy

__all__ = ["Dict", "Heap", "List", "open"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def open(path: str | os.PathLike[str], size: str | int | None = None) -> Heap:
    """Open the heap in a file, or make one.

    Parameters
    ----------
    path : path
        The file, or a block device.
    size : str or int, optional
        If there is no such file, one of about this size is made, such as ``"64M"``: all that the heap will hold, and room for
        what changes. The size of a heap that exists stays as it is, until `Heap.grow`.

    Returns
    -------
    Heap
        Use it in a ``with``, or `Heap.close` it.

    Raises
    ------
    OSError
        If the file cannot be opened, or there is none and no size.
    ValueError
        If the size is bad.
    Error
        If the file is no heap, is damaged, or is in use by another process.
    """
    if size is None or os.path.exists(path):
        return Heap(_native.Heap(os.fspath(path), None))
    return Heap(_native.Heap(os.fspath(path), _bytes(size)))


def _bytes(size: str | int) -> int:
    text = str(size).strip().upper().removesuffix("IB").removesuffix("B")
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS and text else (text, "")
    if not number.isdecimal() or int(number) == 0:
        raise ValueError(f"size={size!r}: write a number of bytes, or one with K, M or G, such as '64M'")
    return int(number) * _UNITS[unit]


class Heap:
    """A heap that is open: see `open`.

    One thread at a time changes it; several may read. It is not to be used after a fork: a child opens it anew once it is closed here.
    """

    def __init__(self, native: _native.Heap) -> None:
        self._native = native
        self._changes = threading.RLock()
        self._changing: int | None = None
        self._pid = os.getpid()

    @property
    def root(self) -> Dict:
        """The root: a dict."""
        self._check()
        return Dict(self, self._native.root())

    @contextlib.contextmanager
    def commit(self) -> Iterator[Dict]:
        """Change the heap: ``with heap.commit() as root``.

        All changes in the ``with`` become stable at its end, at once; if its body raises an exception, none does.

        Raises
        ------
        MemoryError
            If the file has no room for the changes: none has been made.
        OSError
            If the file cannot be written. Open the heap again: it is as of its last commit.
        Error
            If this is inside another ``commit()`` of this thread.
        """
        self._check()
        with self._changes:
            if self._changing is not None:
                raise Error("commit() inside of commit(): end the outer one first")
            self._changing = threading.get_ident()
            try:
                try:
                    yield self.root
                except BaseException:
                    self._native.abort()
                    raise
                self._native.commit()
            finally:
                self._changing = None

    @property
    def used_bytes(self) -> int:
        """Bytes that are in use, with what nobody refers to any more and the next collection frees."""
        self._check()
        return self._native.used_bytes()

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the heap as of its last commit to a new file, which is a heap too. Other threads may commit meanwhile.

        Raises
        ------
        OSError
            If the file exists or cannot be written: nothing is left of it.
        """
        self._check()
        self._native.backup(os.fspath(path))

    def grow(self, size: str | int) -> int:
        """Make the file larger, up to about `size`, such as ``"256M"``; return the bytes that the heap has then.

        A heap grows to 1 GiB, a larger one to the next power of two; one that was made with up to 16 MiB grows to 74 MiB, with up
        to 32 MiB to 319 MiB.

        Raises
        ------
        OSError
            If the file system has no room, or the heap is on a block device.
        ValueError
            If the heap is larger, or cannot have that size.
        """
        self._check()
        return self._native.grow(_bytes(size))

    def close(self) -> None:
        """End the use of the file; twice is once. Its dicts and lists cannot be used any more."""
        self._check_fork()
        self._native.close()

    def __enter__(self) -> Heap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:
            raise Error("a heap that was opened before a fork: open it in one process")

    def _check(self, changes: bool = False) -> None:
        self._check_fork()
        if changes and self._changing != threading.get_ident():
            raise Error("a change outside of a commit: make it in 'with heap.commit() as root:'")

    def _value(self, found: Any) -> Any:
        """A value of Python's for what the heap has."""
        if isinstance(found, _native.Node):
            return Dict(self, found) if found.is_dict else List(self, found)
        if isinstance(found, _native.Array):
            import numpy

            return numpy.frombuffer(found.bytes(), numpy.dtype(found.kind)).reshape(json.loads(found.shape)).copy()
        return found


def _stored(value: Any) -> Any:
    """What the native module takes for a value."""
    if isinstance(value, (Dict, List)):
        return value._node
    if isinstance(value, tuple):
        raise TypeError("a value of type tuple: a heap would give back a list: pass list(value)")
    if type(value) is dict:
        return {key: _stored(item) for key, item in value.items()}
    if type(value) is list:
        return [_stored(item) for item in value]
    if hasattr(value, "__array_interface__"):
        return _array(value)
    return value


def _array(value: numpy.ndarray) -> Any:
    import numpy

    array = numpy.asarray(value)
    if array.dtype.hasobject or array.dtype.names is not None:
        raise TypeError(f"an array of {array.dtype}: a heap has arrays of numbers, truth values, times and texts of one length")
    if array.ndim == 0:
        return array.item()
    return _native.Array(array.dtype.str, json.dumps(array.shape), array.tobytes())


class Dict(MutableMapping[Any, Any]):
    """A dict in a heap. Keys are strings, integers or bytes, and come in order: integers, strings, bytes.

    Look-ups and changes take a time that grows with the logarithm of its size.
    """

    __slots__ = ("_heap", "_node")

    def __init__(self, heap: Heap, node: Any) -> None:
        self._heap, self._node = heap, node

    def __getitem__(self, key: Any) -> Any:
        self._heap._check()
        return self._heap._value(self._node.get(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._heap._check(changes=True)
        self._node.set(key, _stored(value))

    def __delitem__(self, key: Any) -> None:
        self._heap._check(changes=True)
        self._node.remove(key)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of a key; without one, `default` is stored first. What is returned is the heap's."""
        if key not in self:
            self[key] = default
        return self[key]

    def __iter__(self) -> Iterator[Any]:
        self._heap._check()
        return iter(self._node.keys())

    def __len__(self) -> int:
        self._heap._check()
        return len(self._node)

    def __repr__(self) -> str:
        return f"<flashvm.heap.Dict of {len(self)}>"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dict) and self._node.is_same(other._node):
            return True
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


class List(MutableSequence[Any]):
    """A list in a heap.

    Items are read, set and appended in a time that grows with the logarithm of its length. Insertion and deletion
    move all items behind.
    """

    __slots__ = ("_heap", "_node")

    def __init__(self, heap: Heap, node: Any) -> None:
        self._heap, self._node = heap, node

    def _index(self, index: Any) -> int:
        position = index.__index__()
        if position < 0:
            position += len(self._node)
        if position < 0:
            raise IndexError("list index out of range")
        return int(position)

    def __getitem__(self, index: Any) -> Any:
        self._heap._check()
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        return self._heap._value(self._node.at(self._index(index)))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._heap._check(changes=True)
        if isinstance(index, slice):
            raise TypeError("a slice of a heap's list cannot be assigned to: set its items")
        self._node.put(self._index(index), _stored(value))

    def __delitem__(self, index: Any) -> None:
        self._heap._check(changes=True)
        if isinstance(index, slice):
            for position in sorted(range(*index.indices(len(self))), reverse=True):
                self._node.delete(position)
            return
        self._node.delete(self._index(index))

    def insert(self, index: int, value: Any) -> None:
        """Insert an item before an index, as `list.insert`."""
        self._heap._check(changes=True)
        length = len(self._node)
        place = index + length if index < 0 else index
        self._node.insert(min(max(place, 0), length), _stored(value))

    def __len__(self) -> int:
        self._heap._check()
        return len(self._node)

    def __repr__(self) -> str:
        return f"<flashvm.heap.List of {len(self)}>"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, List) and self._node.is_same(other._node):
            return True
        if isinstance(other, (List, list)):
            return len(self) == len(other) and all(one == two for one, two in zip(self, other))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]
