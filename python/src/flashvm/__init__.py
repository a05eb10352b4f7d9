"""More memory than RAM for Python programs, and page replacement on traces.

`run` starts a program with its memory on flash, within a budget of RAM; ``python -m flashvm run --ram 2G script.py``
does so from a shell. Inside a run `advise` tells the pager what an array is for. `sim` runs replacement policies over traces of memory references.

Nothing is loaded before it is used: importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ._errors import CommandNotFound, Error, Refused

if TYPE_CHECKING:
    from . import sim as sim
    from ._command import command as command
    from ._inside import advise as advise
    from ._run import Run as Run
    from ._run import run as run

    __version__: str

__all__ = ["CommandNotFound", "Error", "Refused", "Run", "advise", "command", "run", "sim"]

_HOMES = {"Run": "._run", "run": "._run", "advise": "._inside", "command": "._command"}


def __getattr__(name: str) -> object:
    if name == "sim":
        value: object = import_module(".sim", __name__)
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
