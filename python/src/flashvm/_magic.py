"""``%%flashvm`` for IPython and notebooks: what paging cost a cell."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from ._inside import stats


def load_ipython_extension(shell: Any) -> None:
    """Register ``%flashvm LINE`` and ``%%flashvm``: ``%load_ext flashvm`` calls this."""
    shell.register_magic_function(magic, "line_cell", "flashvm")


def unload_ipython_extension(shell: Any) -> None:
    """Forget the magic: ``%unload_ext flashvm`` calls this."""
    for kind in "line", "cell":
        shell.magics_manager.magics[kind].pop("flashvm", None)


def magic(line: str, cell: str | None = None) -> None:
    """Run a line or a cell, and print what paging cost it."""
    from IPython import get_ipython

    before, begun = stats(), perf_counter()
    get_ipython().run_cell(line if cell is None else cell)
    print(sentence(before, stats(), perf_counter() - begun))


def sentence(before: dict[str, int], after: dict[str, int], seconds: float) -> str:
    """What happened between two statistics.

    >>> nothing = dict.fromkeys(["faults", "major", "read_bytes", "written_bytes"], 0)
    >>> after = {"faults": 1200, "major": 30, "read_bytes": 1 << 20, "written_bytes": 512}
    >>> sentence(nothing, after | {"resident_bytes": 60 << 20, "budget_bytes": 64 << 20}, 1.5)
    'flashvm: 1.50 s, 1,200 faults, 30 of them from flash; 1.0 MiB read, 512 B written; 60.0 MiB of 64.0 MiB in RAM'
    """
    count = {name: after[name] - before[name] for name in ("faults", "major", "read_bytes", "written_bytes")}
    return (
        f"flashvm: {seconds:.2f} s, {count['faults']:,} faults, {count['major']:,} of them from flash; "
        f"{size(count['read_bytes'])} read, {size(count['written_bytes'])} written; "
        f"{size(after['resident_bytes'])} of {size(after['budget_bytes'])} in RAM"
    )


def size(count: int) -> str:
    """Bytes, with a unit.

    >>> size(1023), size(1536), size(5 << 30)
    ('1023 B', '1.5 KiB', '5.0 GiB')
    """
    amount = float(count)
    for unit in "B", "KiB", "MiB", "GiB":
        if amount < 1024:
            break
        amount /= 1024
    else:
        unit = "TiB"
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
