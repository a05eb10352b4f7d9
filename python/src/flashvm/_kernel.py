"""``python -m flashvm kernel``: a Jupyter kernel whose memory is on flash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ._command import command
from ._errors import Refused
from ._options import split

HELP = """\
usage: python -m flashvm kernel [OPTIONS OF flashvm run] [--name NAME] [--user]

Installs a Jupyter kernel: this Python under flashvm run with these options. Notebooks choose it by its name. It goes into this
environment, with --user into your home.

Examples:
  python -m flashvm kernel --ram 2G
  python -m flashvm kernel --ram 25% --select api --name large-arrays --user
  jupyter kernelspec remove flashvm
"""


def install(words: list[str]) -> Path:
    """Write the kernel's description; returns its folder.

    Raises
    ------
    ValueError
        If a word is no option, or the command refuses it; the text names it.
    """
    name, user, options = "flashvm", False, list[str]()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--user":
            user = True
        elif word == "--name" and rest:
            name = rest.pop(0)
        else:
            options.append(word)
    options, program = split(options)
    if program:
        raise ValueError(f"{program[0]!r} is no option: python -m flashvm kernel takes those of flashvm run, --name and --user")
    if not name or set(name.lower()) - set("abcdefghijklmnopqrstuvwxyz0123456789._-"):
        raise ValueError(f"--name {name}: use letters, digits, '.', '_' and '-'")
    _try(options)
    folder = (_home() if user else Path(sys.prefix, "share", "jupyter")) / "kernels" / name
    launch = [sys.executable, "-m", "flashvm", "run", "--quiet", *options, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {
        "argv": launch,
        "display_name": " ".join(["Python under flashvm", *options]),
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"debugger": False},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.json").write_text(json.dumps(spec, indent=1) + "\n")
    return folder


def _try(options: list[str]) -> None:
    """Run as the kernel would, as far as its import."""
    line = [os.fspath(command()), "run", "--quiet", *options, "--", sys.executable, "-c", "import ipykernel"]
    done = subprocess.run(line, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    said = done.stderr.decode(errors="replace").strip()
    if "No module named 'ipykernel'" in said:
        raise ValueError("this Python has no ipykernel: pip install ipykernel")
    if done.returncode != 0:
        raise Refused(said.splitlines()[-1].removeprefix("flashvm: ") if said else f"exit code {done.returncode}", 2)


def _home() -> Path:
    """Where Jupyter looks for a user's kernels."""
    return Path(os.environ.get("JUPYTER_DATA_DIR") or Path.home() / ".local" / "share" / "jupyter")


def main(words: list[str]) -> None:
    """Run the command line."""
    if words and words[0] in ("-h", "--help"):
        print(HELP, end="")
        return
    try:
        folder = install(words)
    except ValueError as error:
        print(f"flashvm: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"flashvm: {error.filename}: {error.strerror}: add --user", file=sys.stderr)
        sys.exit(1)
    print(f"a Jupyter kernel in {folder}")
