"""`run`: a program with its memory on flash, and its statistics."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ._command import command
from ._errors import Error, Refused
from ._options import arguments

_Stream = int | IO[Any] | None


@dataclass(frozen=True)
class Run:
    """A run that has ended.

    Attributes
    ----------
    args : tuple of str
        The program and its arguments.
    returncode : int
        The program's exit code; -N if signal N has ended it.
    stats : dict or None
        The object of ``flashvm run --stats``: ``"processes"``, a list with the figures of each, and ``"totals"``.
        None if the command was killed before it could write them.
    stdout, stderr : bytes or None
        What was captured.
    """

    args: tuple[str, ...]
    returncode: int
    stats: dict[str, Any] | None
    stdout: bytes | None = None
    stderr: bytes | None = None

    @property
    def totals(self) -> dict[str, Any]:
        """The figures of all processes together.

        Raises
        ------
        Error
            If there are no statistics.
        """
        if self.stats is None:
            raise Error(f"no statistics of {self.args[0]!r}: flashvm itself was killed before it could write them")
        totals: dict[str, Any] = self.stats["totals"]
        return totals

    def check_returncode(self) -> None:
        """Raise `subprocess.CalledProcessError` unless the exit code is 0."""
        if self.returncode != 0:
            raise subprocess.CalledProcessError(self.returncode, self.args, self.stdout, self.stderr)


def run(
    program: Sequence[str | os.PathLike[str]],
    *,
    ram: str | int | None = None,
    stdin: _Stream = None,
    stdout: _Stream = None,
    stderr: _Stream = None,
    input: bytes | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    quiet: bool = True,
    **options: str | int | float | bool | os.PathLike[str] | None,
) -> Run:
    """Run a program with its memory on flash, within a budget of RAM, and wait for its end.

    Parameters
    ----------
    program : sequence of str or path
        The program and its arguments. ``[sys.executable, "script.py"]`` is a Python script.
    ram : str or int, optional
        RAM for the program and all its children: ``"512M"``, bytes, a share of the memory limit such as ``"80%"``,
        or ``"auto"``. By default half of the available RAM.
    stdin, stdout, stderr, input, cwd, env, timeout
        As for `subprocess.run`.
    quiet : bool, optional
        Print no summary on standard error.
    **options
        All others of ``flashvm run --help``, with ``_`` for ``-``: ``flash="/mnt/nvme"``, ``flash_size="16G"``,
        ``policy="clock"``, ``compress="lz4"``, ``zero_sharing=False``.

    Returns
    -------
    Run
        Exit code and statistics.

    Raises
    ------
    Refused
        If nothing was run: the text names the value and the remedy. It is a `ValueError`.
    CommandNotFound
        If there is no command ``flashvm``.
    subprocess.TimeoutExpired
        If the program was killed after ``timeout`` seconds.

    Examples
    --------
    >>> import sys, flashvm
    >>> done = flashvm.run([sys.executable, "-c", "x = bytearray(1 << 26); print(len(x))"], ram="32M",
    ...                    stdout=subprocess.PIPE)
    >>> done.returncode, done.stdout
    (0, b'67108864\\n')
    >>> done.totals["resident_pages_max"] * 4096 <= 32 << 20
    True
    >>> flashvm.run(["true"], ram="much")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    flashvm._errors.Refused: ...'much'...
    """
    words = _words(program)
    if "stats" in options:
        raise ValueError(f"stats={options['stats']!r}: leave it out, the result has them as .stats")
    with tempfile.TemporaryDirectory(prefix="flashvm-") as folder:
        stats, refusal = Path(folder, "stats.json"), Path(folder, "refusal")
        line = [
            os.fspath(command()),
            "run",
            *arguments({"ram": ram, "quiet": quiet, **options, "stats": stats}),
            "--",
            *words,
        ]
        source: dict[str, Any] = {"stdin": stdin} if input is None else {"input": input}
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            line,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env={**(os.environ if env is None else env), "FLASHVM_REFUSAL": str(refusal)},
            timeout=timeout,
            **source,
        )
        if refusal.exists():
            raise Refused(refusal.read_text(errors="replace").strip(), done.returncode)
        figures = json.loads(stats.read_text()) if stats.exists() else None
    return Run(words, done.returncode, figures, done.stdout, done.stderr)


def _words(program: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(program, (str, bytes, os.PathLike)):
        raise ValueError(f"program={program!r} is one text: pass a list, such as ['sort', 'words.txt']")
    words = tuple(os.fspath(word) for word in program)
    if not words:
        raise ValueError("program=[] names no program: pass one with its arguments, such as ['sort', 'words.txt']")
    return words
