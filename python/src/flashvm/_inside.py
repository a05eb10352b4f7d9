"""What a program tells the pager from inside a run."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Literal

from ._errors import Error

#: Linux's numbers. The object that the command preloads replaces the C library's ``madvise``.
_ADVICE = {"willneed": 3, "cold": 20, "pageout": 21}
_PRELOADED = "libflashvm_preload.so"


def advise(array: Any, advice: Literal["willneed", "cold", "pageout"]) -> int:
    """Tell the pager how a program will use an array, from inside a run.

    Parameters
    ----------
    array : numpy.ndarray or any writable buffer
        An array without gaps.
    advice : {"willneed", "cold", "pageout"}
        ``"willneed"``: read its pages ahead. ``"cold"``: evict them before others. ``"pageout"``: begin to evict
        them now. The contents stay as they are.

    Returns
    -------
    int
        Bytes of the pages that this is about: for ``"willneed"`` all that the array touches, otherwise those that
        hold nothing else.

    Raises
    ------
    Error
        If this process does not run under ``flashvm run``.
    ValueError
        If a value is bad; the text names it and the remedy.
    OSError
        If the pager or the kernel refuses.

    Examples
    --------
    Under ``python -m flashvm run --ram 2G script.py``::

        flashvm.advise(table, "cold")
    """
    number = _ADVICE.get(advice)
    if number is None:
        raise ValueError(f"advice={advice!r}: write one of {', '.join(map(repr, _ADVICE))}")
    address, length = _place(array)
    if not _is_run():
        raise Error("this process does not run under flashvm: start it with python -m flashvm run --ram SIZE script.py")
    page = mmap.PAGESIZE
    end = address + length
    if advice == "willneed":
        first, end = address // page * page, -(-end // page) * page
    else:
        first, end = -(-address // page) * page, end // page * page
    if first >= end:
        return 0
    library = ctypes.CDLL(None, use_errno=True)
    if library.madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), number) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{advice} of {end - first} bytes: {os.strerror(errno)}")
    return end - first


def _is_run() -> bool:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return any(_PRELOADED in line for line in maps)


def _place(array: Any) -> tuple[int, int]:
    """Address and length of a buffer without gaps."""
    try:
        view = memoryview(array)
    except (TypeError, ValueError) as error:
        raise ValueError(f"array of {type(array).__name__}: {error}: pass a numpy array of numbers") from None
    if not view.contiguous:
        raise ValueError(f"array with strides {view.strides}: it has gaps: pass the array that it is a part of")
    if view.nbytes == 0:
        return 0, 0
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        return int(interface["data"][0]), view.nbytes
    if view.readonly:
        raise ValueError(f"array of {type(array).__name__} is read-only: pass a numpy array or a bytearray")
    return ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes
