"""The exceptions of this package."""

from __future__ import annotations


class Error(Exception):
    """Any error of FlashVM's own."""


class CommandNotFound(Error, FileNotFoundError):
    """The command ``flashvm`` is not where this package looks for it."""


class Refused(Error, ValueError):
    """The command ran nothing: a bad value, or a machine that does not permit what was asked.

    Attributes
    ----------
    returncode : int
        2 for bad input, 126 for a program that cannot be executed, 127 for one that does not exist.
    """

    def __init__(self, line: str, returncode: int = 2) -> None:
        super().__init__(line, returncode)
        self.returncode = returncode

    def __str__(self) -> str:
        return str(self.args[0])
