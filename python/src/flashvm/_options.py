"""The options of ``flashvm run``, as far as this package has to know them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

#: Options without a value. A test compares them with what the command's help says.
FLAGS = frozenset(
    {
        "check",
        "encrypt",
        "flash-in-ram",
        "help",
        "metrics-insecure",
        "no-markers",
        "no-move",
        "no-uring",
        "profile",
        "progress",
        "quiet",
        "shards",
    }
)


def arguments(options: Mapping[str, object]) -> list[str]:
    """Keyword arguments as command-line options.

    >>> arguments({"ram": "2G", "flash_size": 8 << 30, "zero_sharing": False, "no_uring": True, "policy": None})
    ['--ram=2G', '--flash-size=8589934592', '--zero-sharing=off', '--no-uring']
    """
    words = []
    for key, value in options.items():
        name = key.replace("_", "-")
        if value is None or name in FLAGS and value is False:
            continue
        if name in FLAGS and value is True:
            words.append(f"--{name}")
            continue
        if isinstance(value, bool):
            value = "on" if value else "off"
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        words.append(f"--{name}={value}")
    return words


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the command's options from what follows them.

    >>> split(["--ram", "2G", "--quiet", "--policy=lru", "script.py", "--ram", "1"])
    (['--ram', '2G', '--quiet', '--policy=lru'], ['script.py', '--ram', '1'])
    """
    at = 0
    while at < len(words) and words[at] != "--" and (words[at].startswith("--") or words[at] == "-h"):
        alone = "=" in words[at] or words[at] == "-h" or words[at][2:] in FLAGS
        at += 1 if alone else 2
    return list(words[:at]), list(words[at:])
