"""Arrays as chunks of bytes, through the buffer protocol: whatever made them, and whatever their layout.

Python's stable interface has the protocol only from 3.11 on, so the native module cannot take it itself. A chunk is
copied at a time, so that memory does not grow with the array.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import Any

#: References in a chunk: long enough that a call costs nothing, short enough for the CPU's cache.
CHUNK = 1 << 15

_SIGNED, _UNSIGNED = "bhilqn", "BHILQN"
_ORDER = "<" if sys.byteorder == "little" else ">"
_INTEGERS = "pass an array of integers (numpy: array.astype('int64'))"


def chunks(trace: Any, writes: Any) -> tuple[Iterator[tuple[bytes, bytes | None]], int, bool]:
    """The chunks of a trace and its writes, the bytes of an item, and whether items are signed."""
    items = _view("trace", trace)
    code = items.format.lstrip("@=" + _ORDER)
    if code not in tuple(_SIGNED + _UNSIGNED):
        raise ValueError(f"a trace of items {items.format!r}: {_INTEGERS}")
    if len(items) == 0:
        raise ValueError("an empty trace: pass one reference or more")
    flags = None if writes is None else _view("writes", writes, flags=True)
    if flags is not None:
        if flags.format not in ("?", "b", "B"):
            raise ValueError(f"writes of items {flags.format!r}: pass an array of booleans (numpy: array.astype(bool))")
        if len(flags) != len(items):
            raise ValueError(f"{len(flags)} writes for {len(items)} references: pass as many")
    return _pairs(items, flags), items.itemsize, code in _SIGNED


def _pairs(items: memoryview, flags: memoryview | None) -> Iterator[tuple[bytes, bytes | None]]:
    for at in range(0, len(items), CHUNK):
        yield items[at : at + CHUNK].tobytes(), None if flags is None else flags[at : at + CHUNK].tobytes()


def _view(name: str, values: Any, flags: bool = False) -> memoryview:
    if not _has_buffer(values):
        values = _converted(name, values, flags)
    try:
        view = memoryview(values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}: {_INTEGERS}") from None
    if view.ndim != 1:
        raise ValueError(f"{name} has {view.ndim} dimensions: pass one (numpy: array.ravel())")
    return view


def _has_buffer(values: Any) -> bool:
    try:
        memoryview(values)
    except TypeError:
        return False
    except ValueError:
        # It has one, of items that a buffer cannot hold, such as dates.
        pass
    return True


def _converted(name: str, values: Any, flags: bool) -> Any:
    """An array of what has no buffer: a column of pandas, a list, a range."""
    if hasattr(values, "__array__"):
        return values.__array__()
    try:
        return array("B", map(bool, values)) if flags else _numbers(values)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{name}={_short(values)}: {error}: {_INTEGERS}") from None


def _numbers(values: Any) -> array[int]:
    values = list(values)
    try:
        return array("q", values)
    except OverflowError:
        return array("Q", values)


def _short(values: Any) -> str:
    text = repr(values)
    return text if len(text) <= 60 else text[:57] + "..."
