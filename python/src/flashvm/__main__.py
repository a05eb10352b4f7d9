"""``python -m flashvm``: the command, and Python scripts under it."""

from __future__ import annotations

import os
import sys

from ._command import command
from ._errors import CommandNotFound
from ._kernel import main as kernel
from ._options import split

HELP = """\
usage: python -m flashvm run [OPTIONS] SCRIPT.py [ARGS...]     this Python with a script, its memory on flash
       python -m flashvm run [OPTIONS] -m MODULE [ARGS...]     ... with a module
       python -m flashvm run [OPTIONS] -- PROGRAM [ARGS...]    any program
       python -m flashvm kernel [OPTIONS]                      a Jupyter kernel whose memory is on flash
       python -m flashvm COMMAND [ARGS...]                     any other command of flashvm

python -m flashvm run --help lists the options. Example:
  python -m flashvm run --ram 2G script.py
"""


def line(words: list[str], python: str) -> list[str]:
    """The arguments of the command for those of ``python -m flashvm``.

    >>> line(["run", "--ram", "2G", "script.py", "-v"], "python")
    ['run', '--ram', '2G', '--', 'python', 'script.py', '-v']
    >>> line(["run", "--ram", "2G", "--", "sort", "words.txt"], "python")
    ['run', '--ram', '2G', '--', 'sort', 'words.txt']
    """
    if words[0] != "run":
        return words
    options, program = split(words[1:])
    if program and program[0] != "--":
        program = ["--", python, *program]
    return ["run", *options, *program]


def main() -> None:
    """Become the command."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(HELP, end="")
        return
    if words[0] == "kernel":
        kernel(words[1:])
        return
    try:
        path = command()
    except CommandNotFound as error:
        sys.exit(f"flashvm: {error}")
    os.execv(path, [os.fspath(path), *line(words, sys.executable)])


if __name__ == "__main__":
    main()
