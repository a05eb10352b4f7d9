"""More memory than RAM for Python programs, and page replacement on traces.

`run` starts a program with its memory on flash, within a budget of RAM; ``python -m flashvm run --ram 2G script.py``
does so from a shell. Inside a run, or after `start` in a process that runs already, `empty`, `zeros`, `full` and
`from_file` make arrays in managed memory, `memory` lets numpy make them there, `advise` tells the pager what an array is
for, `stats` and `watch` say what paging costs; in IPython ``%load_ext flashvm`` has ``%%flashvm`` say so for a cell.
`heap` keeps dicts, lists and arrays in a file, which outlive the program. `sim` runs replacement policies over traces of
memory references.

Nothing is loaded before it is used: importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ._errors import CommandNotFound, Error, Refused

if TYPE_CHECKING:
    from . import heap as heap
    from . import sim as sim
    from ._command import command as command
    from ._inside import advise as advise
    from ._inside import stats as stats
    from ._inside import watch as watch
    from ._magic import load_ipython_extension as load_ipython_extension
    from ._magic import unload_ipython_extension as unload_ipython_extension
    from ._memory import empty as empty
    from ._memory import from_file as from_file
    from ._memory import full as full
    from ._memory import memory as memory
    from ._memory import zeros as zeros
    from ._run import Run as Run
    from ._run import run as run
    from ._start import start as start

    __version__: str

__all__ = [
    "CommandNotFound",
    "Error",
    "Refused",
    "Run",
    "advise",
    "command",
    "empty",
    "from_file",
    "full",
    "heap",
    "memory",
    "run",
    "sim",
    "start",
    "stats",
    "watch",
    "zeros",
]

_HOMES = {"Run": "._run", "run": "._run", "command": "._command", "start": "._start"}
_HOMES |= dict.fromkeys(["load_ipython_extension", "unload_ipython_extension"], "._magic")
_HOMES |= dict.fromkeys(["advise", "stats", "watch"], "._inside")
_HOMES |= dict.fromkeys(["empty", "from_file", "full", "memory", "zeros"], "._memory")


def __getattr__(name: str) -> object:
    if name in ("heap", "sim"):
        value: object = import_module(f".{name}", __name__)
    elif name == "__version__":
        value = import_module("importlib.metadata").version("flashvm")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
