"""`start`: a pager for a process that runs already."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from pathlib import Path

from . import _inside
from ._command import command
from ._errors import Error, Refused
from ._options import arguments

_lock = threading.RLock()
#: The budget that `start` was called with.
_asked: str | int | None = None


def ensure(ram: str | int) -> None:
    """Start the pager unless it has been started with this budget.

    Raises
    ------
    Error
        If this process has a pager with another budget.
    """
    with _lock:
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
        words = [os.fspath(command()), "serve", *arguments({"ram": ram, "quiet": True, **options})]
        theirs, door = os.pipe()
        try:
            library = _join(*_serve(words, theirs))
        except BaseException:
            os.close(door)
            raise
        finally:
            os.close(theirs)
        # The door stays open until this process and its forked children have ended: then the run ends.
        _inside.use(library)
        _asked = ram


def _serve(words: list[str], stdin: int) -> tuple[str, str]:
    """Start ``flashvm serve``: the path of the object, and the address of the run."""
    out, told = os.pipe()
    with tempfile.TemporaryDirectory(prefix="flashvm-") as folder, open(out, "rb") as lines:
        refusal = Path(folder, "refusal")
        try:
            actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, told, 1)]
            environment = {**os.environ, "FLASHVM_REFUSAL": str(refusal)}
            child = os.posix_spawn(words[0], words, environment, file_actions=actions)
        finally:
            os.close(told)
        _, status = os.waitpid(child, 0)
        if status == 0:
            place, address = lines.read().decode().splitlines()
            return place, address
        said = refusal.read_text(errors="replace").strip() if refusal.exists() else "flashvm serve has ended without a word"
        raise Refused(said, os.waitstatus_to_exitcode(status))


def _join(place: str, address: str) -> ctypes.CDLL:
    """Load the object, and let it join the run."""
    try:
        # Global, so that subinterpreters find the pager, too. The C library's functions stay before its own.
        library = ctypes.CDLL(place, ctypes.RTLD_GLOBAL, use_errno=True)
    except OSError as error:
        raise Error(f"this process cannot load the pager ({error}): {_inside.COMMAND}") from error
    library.flashvm_join.restype = ctypes.c_char_p
    library.flashvm_join.argtypes = [ctypes.c_char_p]
    refused = library.flashvm_join(address.encode())
    if refused:
        raise Error(f"{refused.decode(errors='replace')}: {_inside.COMMAND}")
    return library
