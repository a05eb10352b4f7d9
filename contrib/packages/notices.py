#!/usr/bin/env python3
"""Prints the licences of the crates that are linked into the command and the object: their authors ask that copies carry them.

usage: notices.py > THIRD-PARTY.txt
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = "x86_64-unknown-linux-gnu"
NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT")


def linked():
    """The crates, in the order of their names: those that flashvm-cli needs at run time, and all that these need."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={TARGET}"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    waiting = [id for id, package in packages.items() if package["name"] == "flashvm-cli"]
    found = set()
    while waiting:
        id = waiting.pop()
        if id not in found:
            found.add(id)
            waiting += [dep["pkg"] for dep in nodes[id] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    crates = [packages[id] for id in found if packages[id]["source"]]
    return sorted(crates, key=lambda crate: (crate["name"], crate["version"]))


def texts(crate):
    """The files of a crate that hold its licence."""
    folder = Path(crate["manifest_path"]).parent
    files = [file for file in folder.rglob("*") if file.is_file() and file.name.upper().startswith(NAMES)]
    return [file.read_text(encoding="utf-8", errors="replace").strip() for file in sorted(files)]


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        return 2
    seen = {}
    for crate in linked():
        title = f"{crate['name']} {crate['version']}"
        print(f"{'=' * 80}\n{title}: {crate['license']}\n")
        for text in texts(crate):
            first = seen.setdefault(text, title)
            print(f"{text}\n" if first == title else f"The same text as under {first}.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
