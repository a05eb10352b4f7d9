"""Page replacement on traces: the policies of the live pager, and others, over references of any program.

>>> from flashvm import sim
>>> sim.simulate([1, 2, 3, 1, 2, 3], "lru", 2)["misses"]
6
>>> sim.simulate([1, 2, 3, 1, 2, 3], "opt", 2)["misses"]
4

A *trace* is one of:

- an array of integers: numpy's, `array.array`, anything with the buffer protocol or ``__array__``, or a sequence.
  They are page numbers, or keys of a cache; with ``unit="bytes"`` byte addresses, of pages of 4 KiB. ``writes``, as
  long as the trace, tells which references are writes (without it all are reads);
- the path of a file in a format that `formats` lists, plain or compressed with gzip or zstd;
- a `Trace`: one of these, read once.

Arguments and results are plain and can be pickled, so that Dask, Ray and `multiprocessing` can map `simulate` over
traces. While a simulation runs, other Python threads run too, and Ctrl-C ends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

from . import _native
from ._trace import Trace, Unit

if TYPE_CHECKING:
    import pandas

__all__ = [
    "Curve",
    "Figures",
    "Trace",
    "device_models",
    "formats",
    "frame",
    "miss_curve",
    "policies",
    "simulate",
    "sweep",
]

Size = Union[int, str]
Sight = Literal["full", "live"]


class Figures(TypedDict):
    """The result of a policy with a size of memory: the keys of ``flashvm sim --json``."""

    trace: str
    policy: str
    frames: int
    requests: int
    misses: int
    observed: int
    page_reads: int
    page_writes: int
    io_time_us: float
    wall_s: float
    requests_per_s: float


class Curve(TypedDict):
    """A miss curve: ``misses`` and ``miss_ratio`` are by ``frames``."""

    trace: str
    policy: str
    requests: int
    pages: int
    frames: list[int]
    misses: list[int]
    miss_ratio: list[float]


def simulate(
    trace: Any,
    policy: str,
    frames: Size,
    *,
    writes: Any = None,
    unit: Unit = "pages",
    format: str | None = None,
    device_model: str = "slc-nand",
    sight: Sight = "full",
) -> Figures:
    """Run one policy with one size of memory over a trace.

    A reference to a page that is not in memory is a miss and reads the page; a dirty page is written when it is
    evicted, not at the end.

    Parameters
    ----------
    trace : array of int, sequence of int, str, path or Trace
        The references.
    policy : str
        A name of `policies`, with parameters in parentheses: ``"clock(insert=clear)"``.
    frames : int or str
        The size of memory: frames (``400``), bytes (``"8M"``) or a share of the footprint (``"10%"``).
    writes, unit, format
        As for `Trace`.
    device_model : str, optional
        The device whose time ``io_time_us`` is: a name of `device_models`.
    sight : {"full", "live"}, optional
        The references that the policy sees: all, or those that a live pager would see.

    Returns
    -------
    dict
        `Figures`: trace, policy, frames, requests, misses, observed, page_reads, page_writes, io_time_us,
        wall_s, requests_per_s.

    Raises
    ------
    ValueError
        If a value is bad; the text names it and the remedy.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> from flashvm.sim import simulate
    >>> figures = simulate([1, 2, 3, 4, 1, 2, 5], "lru", 3, writes=[1, 0, 0, 0, 0, 0, 0])
    >>> figures["misses"], figures["page_reads"], figures["page_writes"]
    (7, 7, 1)
    >>> simulate(range(100), "lru", "50%")["frames"]
    50
    >>> simulate([1, 2], "lru", 0)
    Traceback (most recent call last):
    ValueError: 0 of memory is less than one frame, for a footprint of 2 pages: ask for one frame or more
    """
    source = _read(trace, writes, unit, format)
    lines = _sweep(source, _text("policy", policy), _text("frames", frames), device_model, sight, 1)
    if len(lines) != 1:
        raise ValueError(f"policy={policy!r}, frames={frames!r}: simulate() takes one of each, sweep() takes lists")
    return lines[0]


def sweep(
    trace: Any,
    policies: str | Iterable[str],
    frames: Size | Iterable[Size],
    *,
    writes: Any = None,
    unit: Unit = "pages",
    format: str | None = None,
    device_model: str = "slc-nand",
    sight: Sight = "full",
    threads: int | None = None,
) -> list[Figures]:
    """Run every policy with every size of memory over a trace.

    Parameters
    ----------
    trace, writes, unit, format, device_model, sight
        As for `simulate`.
    policies : str or iterable of str
        Names, separated by commas or as a list.
    frames : int, str or iterable of them
        Sizes, separated by commas or as a list.
    threads : int, optional
        Simulations at a time, 1 to 1024. By default as many as there are processors; 1 suits a worker of Dask or Ray.

    Returns
    -------
    list of dict
        `Figures` by size, then by policy.

    Raises
    ------
    ValueError
        If a value is bad; the text names it and the remedy.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> from flashvm.sim import sweep
    >>> trace = [page % 7 for page in range(70)]
    >>> for line in sweep(trace, "lru,opt", [3, 6]):
    ...     print(line["frames"], line["policy"], line["misses"])
    3 lru 70
    3 opt 48
    6 lru 70
    6 opt 17
    """
    if threads is not None and not (isinstance(threads, int) and 1 <= threads <= 1024):
        raise ValueError(f"threads={threads!r}: write a number from 1 to 1024, or leave it out")
    source = _read(trace, writes, unit, format)
    return _sweep(source, _text("policies", policies), _text("frames", frames), device_model, sight, threads)


def miss_curve(
    trace: Any,
    policy: str = "lru",
    frames: Size | Iterable[Size] | None = None,
    *,
    writes: Any = None,
    unit: Unit = "pages",
    format: str | None = None,
    sight: Sight = "full",
    threads: int | None = None,
) -> Curve:
    """Misses of a policy by size of memory.

    Parameters
    ----------
    trace, writes, unit, format, sight, threads
        As for `sweep`.
    policy : str, optional
        One policy.
    frames : int, str or iterable of them, optional
        Sizes. By default the powers of two below the footprint, and the footprint.

    Returns
    -------
    dict
        `Curve`: trace, policy, requests, pages, and the lists frames, misses and miss_ratio.

    Raises
    ------
    ValueError, OSError
        As for `sweep`.

    Examples
    --------
    >>> from flashvm.sim import miss_curve
    >>> curve = miss_curve([1, 2, 3, 2, 1, 4, 4, 5])
    >>> curve["frames"], curve["misses"]
    ([1, 2, 4, 5], [7, 6, 5, 5])
    """
    source = _read(trace, writes, unit, format)
    sizes: Any = frames
    if sizes is None:
        sizes = [1 << power for power in range((source.pages - 1).bit_length())] + [source.pages]
    lines = sweep(source, policy, sizes, sight=sight, threads=threads)
    names = {line["policy"] for line in lines}
    if len(names) != 1:
        raise ValueError(f"policy={policy!r}: a curve has one policy, sweep() takes several")
    return Curve(
        trace=source.name,
        policy=names.pop(),
        requests=len(source),
        pages=source.pages,
        frames=[line["frames"] for line in lines],
        misses=[line["misses"] for line in lines],
        miss_ratio=[line["misses"] / line["requests"] for line in lines],
    )


def frame(results: Iterable[Figures] | Curve) -> pandas.DataFrame:
    """Results as a frame of pandas: a row for each policy and size.

    Parameters
    ----------
    results : list of dict, or dict
        What `sweep` or `miss_curve` has returned; results of several traces may be joined.

    Returns
    -------
    pandas.DataFrame
        The keys of the results are its columns.

    Raises
    ------
    ImportError
        If pandas is not installed.

    Examples
    --------
    >>> from flashvm.sim import frame, sweep
    >>> results = sweep([1, 2, 3, 1, 2, 3], "lru,opt", 2) + sweep([1, 2, 1, 2], "lru,opt", 1)
    >>> frame(results).groupby("policy").misses.sum().to_dict()
    {'lru': 10, 'opt': 8}
    """
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise ImportError("a frame needs pandas: pip install pandas") from error
    return DataFrame(results if isinstance(results, dict) else list(results))


def policies() -> dict[str, str]:
    """Names of all policies, with what each does.

    >>> from flashvm.sim import policies
    >>> policies()["lru"]
    'least recently used first'
    """
    return dict(_native.policies())


def formats() -> dict[str, str]:
    """Names of all trace formats, with what each is.

    >>> from flashvm.sim import formats
    >>> formats()["keys"]
    'one key a line: a page that is read'
    """
    return dict(_native.formats())


def device_models() -> dict[str, str]:
    """Names of all device models, with what each is.

    >>> from flashvm.sim import device_models
    >>> "nvme" in device_models()
    True
    """
    return dict(_native.device_models())


def _read(trace: Any, writes: Any, unit: Unit, format: str | None) -> Trace:
    if not isinstance(trace, Trace):
        return Trace(trace, writes=writes, unit=unit, format=format)
    if writes is not None or unit != "pages" or format is not None:
        raise ValueError(f"{trace!r} is read already: give writes, unit and format to Trace()")
    return trace


def _sweep(
    source: Trace, policies: str, frames: str, device_model: str, sight: Sight, threads: int | None
) -> list[Figures]:
    if sight not in ("full", "live"):
        raise ValueError(f"sight={sight!r}: write 'full' or 'live'")
    if not isinstance(device_model, str):
        raise ValueError(f"device_model={device_model!r}: write one of {', '.join(device_models())}")
    rows = _native.sweep(source._references, policies, frames, device_model, sight == "live", threads)
    return [json.loads(row) for row in rows]


def _text(name: str, values: Any) -> str:
    """One text with commas, as the command takes it."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        values = [values]
    words = [str(value) for value in values]
    if not words:
        raise ValueError(f"{name}=[]: name one at least")
    return ",".join(words)
