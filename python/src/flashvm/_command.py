"""Where the command ``flashvm`` is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ._errors import CommandNotFound


def command() -> Path:
    """Find the command.

    The first of: what ``FLASHVM`` names in the environment, the command that was installed with this package,
    ``flashvm`` on ``PATH``.

    Returns
    -------
    pathlib.Path
        The command.

    Raises
    ------
    CommandNotFound
        If there is none, or ``FLASHVM`` names something else.

    Examples
    --------
    >>> import flashvm
    >>> flashvm.command().name
    'flashvm'
    """
    named = os.environ.get("FLASHVM")
    if named:
        found = shutil.which(named)
        if found is None:
            raise CommandNotFound(f"FLASHVM={named!r} is no program: name the flashvm command, or unset FLASHVM")
        return Path(found)
    found = _installed() or shutil.which("flashvm")
    if found is None:
        raise CommandNotFound(
            "the flashvm command is neither installed with this package nor on PATH: install the wheel "
            "(pip install ./python in a clone), or name the command in FLASHVM"
        )
    return Path(found)


def _installed() -> str | None:
    """The command among the files of the installed package."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = files("flashvm") or []
    except PackageNotFoundError:
        return None
    places = (str(file.locate()) for file in listed if file.name == "flashvm" and file.parent.name != "flashvm")
    return next((os.path.normpath(place) for place in places if os.access(place, os.X_OK)), None)
