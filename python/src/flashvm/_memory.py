"""Arrays in managed memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Iterator
from errno import ENOSYS
from typing import TYPE_CHECKING, Any

from ._inside import no_run, pager
from ._start import ensure

if TYPE_CHECKING:
    import numpy
    from numpy.typing import DTypeLike

    Shape = int | tuple[int, ...]

_HINT = " (add --select api to page nothing but these arrays)"
_PAGE = 4096
#: The place of PyDataMem_SetHandler in numpy's table of functions (NEP 49).
_SET_HANDLER = 304


class _Mapping:
    """Managed memory, unmapped when nobody refers to it. Arrays over it have it as their base."""

    __slots__ = ("__weakref__", "_address", "_size")

    def __init__(self, size: int) -> None:
        library = pager(_HINT)
        length = -(-size // _PAGE) * _PAGE
        address = library.flashvm_map(length)
        if not address:
            errno = ctypes.get_errno()
            if errno == ENOSYS:
                raise no_run(_HINT)
            raise MemoryError(
                f"{size} bytes of managed memory: {os.strerror(errno)}: budget and store have no room: give the run more "
                f"--ram or a larger --flash-size"
            )
        self._address, self._size = address, size
        weakref.finalize(self, library.flashvm_unmap, address, length).atexit = False

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self._size,), "typestr": "|u1", "data": (self._address, False), "version": 3}


def empty(shape: Shape, dtype: DTypeLike = float, order: str = "C") -> numpy.ndarray:
    """Make an array in managed memory, which is paged to flash. Its contents are zeros.

    Parameters
    ----------
    shape : int or tuple of int
        Its shape.
    dtype : data type, default float
        Its type: no Python objects.
    order : {"C", "F"}
        Rows or columns one after the other.

    Returns
    -------
    numpy.ndarray
        An ordinary array. Its memory is freed when neither it nor a view of it is left.

    Raises
    ------
    Error
        If this process has no pager; the text says how it gets one.
    MemoryError
        If budget and store together have no room.
    ValueError
        If the shape or the type is bad; the text names it.

    Examples
    --------
    Under ``python -m flashvm run --ram 2G --select api script.py``::

        table = flashvm.empty((1_000_000, 512), dtype="f4")
    """
    import numpy

    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise ValueError(f"dtype={dtype!r} has Python objects, which lie elsewhere: use a type of numbers")
    if order not in ("C", "F"):
        raise ValueError(f"order={order!r}: write 'C' or 'F'")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(length < 0 for length in shape):
        raise ValueError(f"shape={shape}: lengths are not negative")
    count = 1
    for length in shape:
        count *= int(length)
    # numpy refuses a view of no bytes.
    mapping = _Mapping(max(count * kind.itemsize, kind.itemsize, 1))
    flat = numpy.asarray(mapping)[: count * kind.itemsize].view(kind) if kind.itemsize else numpy.empty(count, kind)
    return flat.reshape(shape, order=order)


def zeros(shape: Shape, dtype: DTypeLike = float, order: str = "C") -> numpy.ndarray:
    """Make an array of zeros in managed memory: as `empty`, whose memory is fresh.

    Examples
    --------
    Under ``python -m flashvm run --ram 2G script.py``::

        counts = flashvm.zeros(1 << 30, dtype="u4")
    """
    return empty(shape, dtype, order)


def full(shape: Shape, fill_value: Any, dtype: DTypeLike | None = None, order: str = "C") -> numpy.ndarray:
    """Make an array in managed memory that is filled with a value; parameters and errors as for `empty`.

    Examples
    --------
    Under ``python -m flashvm run --ram 2G script.py``::

        distance = flashvm.full(1 << 28, -1, dtype="i4")
    """
    import numpy

    array = empty(shape, numpy.asarray(fill_value).dtype if dtype is None else dtype, order)
    array[...] = fill_value
    return array


def from_file(path: str | os.PathLike[str], dtype: DTypeLike = float) -> numpy.ndarray:
    """Read a file of numbers into an array in managed memory.

    Parameters
    ----------
    path : path
        The file: raw numbers one after the other, as ``numpy.ndarray.tofile`` writes them.
    dtype : data type, default float
        Their type.

    Returns
    -------
    numpy.ndarray
        The numbers, one dimension. The file may change afterwards.

    Raises
    ------
    Error, MemoryError
        As for `empty`.
    OSError
        If the file cannot be read.
    ValueError
        If its length is no multiple of the type's.

    Examples
    --------
    Under ``python -m flashvm run --ram 2G script.py``::

        samples = flashvm.from_file("samples.f8")
    """
    import numpy

    kind = numpy.dtype(dtype)
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if kind.itemsize == 0 or size % kind.itemsize:
            raise ValueError(f"{os.fspath(path)}: {size} bytes are no whole numbers of {kind.itemsize} bytes: name another dtype")
        array = empty(size // kind.itemsize, kind)
        left = memoryview(array).cast("B") if size else memoryview(b"")
        while left:
            read = file.readinto(left)
            if not read:
                raise OSError(f"{os.fspath(path)}: it became shorter while it was read")
            left = left[read:]
    return array


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of NEP 49."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


#: The handler and its capsule: arrays refer to the capsule as long as they live.
_handler: tuple[_Handler, Any] | None = None
_CAPSULE = b"mem_handler"


def _capsule() -> Any:
    global _handler
    if _handler is None:
        library = pager(_HINT)
        address = {
            name: ctypes.cast(getattr(library, f"flashvm_array_{name}"), ctypes.c_void_p).value
            for name in ("malloc", "calloc", "realloc", "free")
        }
        handler = _Handler(name=b"flashvm", version=1, context=None, **address)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        _handler = handler, new(ctypes.addressof(handler), _CAPSULE, None)
    return _handler[1]


def _set_handler(capsule: Any) -> Any:
    """Make numpy allocate by this handler in this context; returns the one before."""
    import numpy

    core = numpy._core if hasattr(numpy, "_core") else numpy.core
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.POINTER(ctypes.c_void_p)
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = pointer(core._multiarray_umath._ARRAY_API, None)
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
    return kind(table[_SET_HANDLER])(capsule)


@contextlib.contextmanager
def memory(ram: str | int | None = None) -> Iterator[None]:
    """Put the arrays that numpy makes inside of ``with`` into managed memory, temporaries too.

    Arrays of 64 KiB and more are managed; smaller ones come from ``malloc``. They outlive the ``with``, and are freed as
    always. As numpy's own handlers, it holds in this thread (or asynchronous task) alone. It nests.

    Parameters
    ----------
    ram : str or int, optional
        Give this process a pager with this budget first, if it has none: ``start(ram)``.

    Raises
    ------
    Error
        If this process has no pager, and ``ram`` is left out; the text says how it gets one. If it has one, and ``ram`` is not what
        `start` was called with.

    Examples
    --------
    Under ``python -m flashvm run --ram 2G --select api script.py``::

        with flashvm.memory():
            table = numpy.ones((1_000_000, 512))
            table *= 2
    """
    if ram is not None:
        ensure(ram)
    before = _set_handler(_capsule())
    try:
        yield
    finally:
        _set_handler(before)
