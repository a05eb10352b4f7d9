"""What the tests share: the command, and a trace of the repository's."""

import json
import subprocess
from pathlib import Path

import pytest

import flashvm

ROOT = Path(__file__).resolve().parents[2]
GCC = ROOT / "crates" / "flashvm-sim" / "tests" / "data" / "gcc.trace.gz"


@pytest.fixture(scope="session")
def command() -> str:
    """The command that came with the package."""
    return str(flashvm.command())


@pytest.fixture(scope="session")
def sim(command):
    """`flashvm sim`, its lines as dicts."""

    def lines(*arguments: object) -> list[dict]:
        words = [command, "sim", "--json", *map(str, arguments)]
        output = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
        return [json.loads(line) for line in output.splitlines()]

    return lines
