"""What a program tells its pager."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from errno import ENOMEM
from typing import Any, Literal

from ._errors import Error

#: How a process gets a pager that needs no privilege, for messages.
COMMAND = "start it with python -m flashvm run --ram SIZE script.py"
_NO_RUN = (
    f"this process does not run under flashvm: {COMMAND}, or call flashvm.start(SIZE) first, which needs CAP_SYS_PTRACE"
)
#: The numbers of ``madvise``, and the functions for pins.
_MADVISE = {"willneed": 3, "cold": 20, "pageout": 21}
_PINS = {"pin": "flashvm_pages_pin", "unpin": "flashvm_pages_unpin"}


#: The object with the pager, once it is known.
_library: ctypes.CDLL | None = None


def pager(hint: str = "") -> ctypes.CDLL:
    """The object with the functions of ``include/flashvm.h``: the command preloads it, or `start` has loaded it.

    Raises
    ------
    Error
        If this process has no pager; the text says how it gets one, and ``hint`` after it.
    """
    if _library is None:
        try:
            use(ctypes.CDLL(None, use_errno=True))
        except AttributeError:
            raise no_run(hint) from None
    assert _library is not None
    return _library


def has_pager() -> bool:
    """Whether this process has a pager."""
    try:
        pager()
    except Error:
        return False
    return True


def use(library: ctypes.CDLL) -> None:
    """Make this the object with the pager.

    Raises
    ------
    AttributeError
        If it has no pager.
    """
    global _library
    library.flashvm_map.restype = ctypes.c_void_p
    library.flashvm_map.argtypes = [ctypes.c_size_t]
    library.flashvm_unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.flashvm_stats.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _library = library


def no_run(hint: str = "") -> Error:
    """The exception of a process without a pager."""
    return Error(_NO_RUN + hint)


class _Stats(ctypes.Structure):
    """``struct flashvm_stats``."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "faults",
            "major",
            "pool",
            "soft",
            "zero",
            "read_bytes",
            "written_bytes",
            "resident_bytes",
            "resident_bytes_max",
            "pool_bytes",
            "flash_bytes",
            "budget_bytes",
            "locked_bytes",
        )
    ]


def stats() -> dict[str, int]:
    """See what paging costs this process.

    It takes microseconds, and changes nothing.

    Returns
    -------
    dict
        Counters since the process started: ``faults`` (first stores to write-protected pages left out), of these ``major`` (read from flash), ``pool``
        (compressed in RAM), ``soft`` (in RAM, out of the program's reach) and ``zero`` (first touches); ``read_bytes`` and
        ``written_bytes`` of flash. Amounts at this moment, in bytes: ``resident_bytes`` (RAM of this process's pages,
        compressed ones included), ``resident_bytes_max`` (the most that it has been), ``pool_bytes`` (RAM of compressed
        pages), ``flash_bytes`` (space on flash), ``budget_bytes`` (RAM that all processes of the run share: ``--ram``), ``locked_bytes`` (pinned memory).

    Raises
    ------
    Error
        If this process has no pager; the text says how it gets one.

    Examples
    --------
    Under ``python -m flashvm run --ram 2G script.py``::

        before = flashvm.stats()["major"]
        table.sum(axis=0)
        print(flashvm.stats()["major"] - before, "faults from flash")
    """
    library, now = pager(), _Stats()
    if library.flashvm_stats(ctypes.byref(now), ctypes.sizeof(now)) != 0:
        raise no_run()
    return {name: getattr(now, name) for name, _ in _Stats._fields_}


@contextlib.contextmanager
def watch(callback: Callable[[dict[str, int]], object], every: float = 1.0) -> Iterator[None]:
    """Call a function with the statistics now and then while the body of ``with`` runs, and once at its end.

    Parameters
    ----------
    callback : callable
        Gets the dict of `stats`, in a thread of its own. An exception ends the calls, and is raised at the end of the
        ``with`` unless its body has raised another.
    every : float, optional
        Seconds between two calls.

    Raises
    ------
    Error
        If this process has no pager; the text says how it gets one.
    ValueError
        If ``every`` is no time.

    Examples
    --------
    Under ``python -m flashvm run --ram 2G script.py``::

        with flashvm.watch(lambda now: print(now["major"], "faults from flash")):
            table.sort(axis=0)
    """
    if not every > 0:
        raise ValueError(f"every={every!r}: name seconds, such as 1.0")
    stats()
    ended, failures = threading.Event(), list[BaseException]()

    def calls() -> None:
        try:
            while not ended.wait(every):
                callback(stats())
            callback(stats())
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=calls, name="flashvm.watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]


def advise(array: Any, advice: Literal["willneed", "cold", "pageout", "pin", "unpin"]) -> int:
    """Tell the pager how a program will use an array.

    Parameters
    ----------
    array : numpy.ndarray or any writable buffer
        An array without gaps.
    advice : {"willneed", "cold", "pageout", "pin", "unpin"}
        ``"willneed"``: read its pages ahead. ``"cold"``: evict them before others. ``"pageout"``: begin to evict
        them now. ``"pin"``: read them in and keep them in RAM until ``"unpin"`` or the array's end; at most half of
        the budget can be pinned, and a forked child has no pins. The contents stay as they are.

    Returns
    -------
    int
        Bytes of the pages that this is about: for ``"cold"`` and ``"pageout"`` those that hold nothing else, otherwise
        all that the array touches.

    Raises
    ------
    Error
        If this process has no pager; the text says how it gets one.
    ValueError
        If a value is bad; the text names it and the remedy.
    MemoryError
        If more would be pinned than the budget allows.
    OSError
        If the pager or the kernel refuses.

    Examples
    --------
    Under ``python -m flashvm run --ram 2G script.py``::

        flashvm.advise(table, "cold")
    """
    if advice not in _MADVISE and advice not in _PINS:
        raise ValueError(f"advice={advice!r}: write one of {', '.join(map(repr, [*_MADVISE, *_PINS]))}")
    address, length = _place(array)
    library = pager()
    page = mmap.PAGESIZE
    end = address + length
    if advice not in ("cold", "pageout"):
        first, end = address // page * page, -(-end // page) * page
    else:
        first, end = -(-address // page) * page, end // page * page
    if first >= end:
        return 0
    place = ctypes.c_void_p(first), ctypes.c_size_t(end - first)
    if advice in _PINS:
        status = getattr(library, _PINS[advice])(*place)
    else:
        status = library.flashvm_pages_advise(*place, _MADVISE[advice])
    if status != 0:
        errno = ctypes.get_errno()
        if advice == "pin" and errno == ENOMEM:
            now = stats()
            most = max(now["budget_bytes"] - (256 << 10), 0) // 2
            raise MemoryError(
                f"pin of {end - first} bytes beside {now['locked_bytes']} pinned ones: this process can pin at most {most} "
                f"(less while other processes of the run use RAM): give the run more --ram, or unpin something"
            )
        raise OSError(errno, f"{advice} of {end - first} bytes: {os.strerror(errno)}")
    return end - first


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
