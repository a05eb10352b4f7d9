"""`start`: a pager for a process that runs already."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import threading
from pathlib import Path

from . import _inside
from ._command import command
from ._errors import Error, Refused
from ._options import arguments

_HOW = "start it with python -m flashvm run --ram SIZE script.py"

_lock = threading.Lock()
#: The budget that `start` was called with.
_asked: str | int | None = None


def ensure(ram: str | int) -> None:
    """Start the pager unless it has been started with this budget.

    Raises
    ------
    Error
        If this process has a pager with another budget.
    """
    if not _inside.has_pager():
        start(ram)
    elif ram != _asked:
        budget = _inside.stats()["budget_bytes"]
        raise Error(f"ram={ram!r}: this process has a pager with a budget of {budget} bytes already: leave it out")


def start(ram: str | int | None = None, **options: str | int | float | bool | os.PathLike[str] | None) -> None:
    """Give this process managed memory, without ``flashvm run``: for a notebook or a service that runs already.

    From then on `empty`, `zeros`, `full`, `from_file` and `memory` work, in every thread and in forked children, and page
    within the budget. Everything else stays the kernel's, as with ``flashvm run --select api``. It holds until this
    process and its forked children have ended. Programs that this process executes are not part of it.

    The pager resolves faults in a thread of its own (handler mode), for which the kernel wants ``CAP_SYS_PTRACE``. Without
    it this is an exception: a script that ``python -m flashvm run`` starts needs no privilege.

    Parameters
    ----------
    ram : str or int, optional
        RAM for managed memory, of this process and its forked children together: as for `run`.
    **options
        All others of ``flashvm run --help``, with ``_`` for ``-``, but for ``select`` and ``fault``: ``flash="/mnt/nvme"``,
        ``flash_size="16G"``, ``stats="paging.json"``. ``quiet=False`` prints a summary at the end.

    Raises
    ------
    Error
        If this process has a pager already, or the kernel does not let it have one.
    Refused
        If a value is bad, or the machine does not permit handler mode: the text names the value and the remedy. It is a
        `ValueError`.
    CommandNotFound
        If there is no command ``flashvm``.

    Examples
    --------
    In a process with ``CAP_SYS_PTRACE``::

        flashvm.start("2G", flash="/mnt/nvme")
        table = flashvm.empty((1_000_000, 512), dtype="f4")
    """
    global _asked
    with _lock:
        if _inside.has_pager():
            raise Error("this process has a pager already: leave flashvm.start out")
        # The door stays open until this process and its forked children have ended: then the run ends.
        place, address, door = _serve(arguments({"ram": ram, "quiet": True, **options}))
        try:
            # Global, so that subinterpreters find the pager, too. The C library's functions stay before its own.
            library = ctypes.CDLL(place, ctypes.RTLD_GLOBAL, use_errno=True)
            library.flashvm_join.restype = ctypes.c_char_p
            library.flashvm_join.argtypes = [ctypes.c_char_p]
            refused = library.flashvm_join(address.encode())
        except OSError as error:
            os.close(door)
            raise Error(f"this process cannot load the pager ({error}): {_HOW}") from error
        if refused:
            os.close(door)
            raise Error(f"{refused.decode(errors='replace')}: {_HOW}")
        _inside.use(library)
        _asked = ram


def _serve(words: list[str]) -> tuple[str, str, int]:
    """Start ``flashvm serve``: the path of the object, the address of the run, and the descriptor that keeps it open."""
    theirs, door = os.pipe()
    out, told = os.pipe()
    with tempfile.TemporaryDirectory(prefix="flashvm-") as folder, contextlib.ExitStack() as ours:
        ours.callback(os.close, out)
        refusal = Path(folder, "refusal")
        program = os.fspath(command())
        try:
            actions = [(os.POSIX_SPAWN_DUP2, theirs, 0), (os.POSIX_SPAWN_DUP2, told, 1)]
            environment = {**os.environ, "FLASHVM_REFUSAL": str(refusal)}
            child = os.posix_spawn(program, [program, "serve", *words], environment, file_actions=actions)
        except OSError:
            os.close(door)
            raise
        finally:
            os.close(theirs)
            os.close(told)
        _, status = os.waitpid(child, 0)
        if status == 0:
            with open(out, "rb", closefd=False) as lines:
                place, address = lines.read().decode().splitlines()
            return place, address, door
        os.close(door)
        said = refusal.read_text(errors="replace").strip() if refusal.exists() else "flashvm serve has ended without a word"
        raise Refused(said, os.waitstatus_to_exitcode(status))
