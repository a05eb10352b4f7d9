"""`Trace`: references that are read once."""

from __future__ import annotations

import os
from typing import Any, Literal

from . import _native
from ._arrays import chunks

Unit = Literal["pages", "bytes"]


class Trace:
    """A trace that is read once, for several simulations.

    Parameters
    ----------
    source : array of int, sequence of int, str or path
        The references, or the file that has them.
    writes : array of bool, optional
        Which references of an array are writes.
    unit : {"pages", "bytes"}, optional
        What the numbers of an array are.
    format : str, optional
        The format of a file; by default its content tells.

    Raises
    ------
    ValueError
        If a value is bad; the text names it and the remedy.
    OSError
        If the file cannot be read.

    Notes
    -----
    A trace takes four bytes a reference, in RAM up to 256 MiB and then in a temporary file. It is pickled as its
    source: a file is read again where it is unpickled, an array goes with it.

    Examples
    --------
    >>> from array import array
    >>> from flashvm.sim import Trace, simulate
    >>> trace = Trace(array("q", [7, 8, 9, 7]), writes=[True, False, False, False])
    >>> len(trace), trace.pages, trace.pages_written
    (4, 3, 1)
    >>> [simulate(trace, "lru", frames)["misses"] for frames in (2, 3)]
    [4, 3]
    """

    def __init__(
        self,
        source: Any,
        *,
        writes: Any = None,
        unit: Unit = "pages",
        format: str | None = None,
    ) -> None:
        self._arguments = (source, writes, unit, format)
        if unit not in ("pages", "bytes"):
            raise ValueError(f"unit={unit!r}: write 'pages' or 'bytes'")
        if isinstance(source, (str, os.PathLike)):
            if writes is not None or unit != "pages":
                raise ValueError(f"{os.fspath(source)}: the file has kinds and units: leave writes and unit out")
            # The command's name for standard input is a file here.
            path = os.path.join(".", "-") if os.fspath(source) == "-" else source
            self._references = _native.read_file(path, format)
        else:
            if format is not None:
                raise ValueError(f"format={format!r}: arrays have none: leave it out")
            parts, item_bytes, signed = chunks(source, writes)
            self._references = _native.read_chunks(parts, item_bytes, signed, unit == "pages")

    def __reduce__(self) -> tuple[Any, ...]:
        return _trace, self._arguments

    def __repr__(self) -> str:
        return f"<Trace of {self.name}: {len(self)} references, {self.pages} pages>"

    def __len__(self) -> int:
        """References; one that spans pages counts once for each."""
        return len(self._references)

    @property
    def name(self) -> str:
        """The path of the file, or ``array``."""
        return self._references.name

    @property
    def pages(self) -> int:
        """Distinct pages: the footprint."""
        return self._references.pages

    @property
    def pages_written(self) -> int:
        """Distinct pages that are written."""
        return self._references.pages_written


def _trace(source: Any, writes: Any, unit: Unit, format: str | None) -> Trace:
    return Trace(source, writes=writes, unit=unit, format=format)
