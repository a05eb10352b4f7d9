"""Every Python sample of README.md and docs/python.md runs, with the names that its reader would have."""

import os
import re
import subprocess
import sys

import pytest
from conftest import GCC, ROOT

import flashvm

PRELUDE = """
import numpy
import flashvm
from flashvm import sim
array = keys = numpy.arange(10_000) % 977
table = numpy.zeros(1 << 20)
paths = ["gcc.trace.gz"]
"""


def samples():
    for name in "README.md", "docs/python.md":
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.M | re.S)):
            yield pytest.param(block, id=f"{name} {number}")


SAMPLES = list(samples())


def test_there_are_samples():
    assert len(SAMPLES) > 4


@pytest.mark.parametrize("block", SAMPLES)
def test_a_sample_runs(block, tmp_path):
    (tmp_path / "words.txt").write_text("b\na\n")
    (tmp_path / "script.py").write_text("print(1)\n")
    os.symlink(GCC, tmp_path / "gcc.trace.gz")
    program = [sys.executable, "-c", PRELUDE + block]
    if "advise" in block:
        returncode = flashvm.run(program, ram="96M", cwd=tmp_path).returncode
    else:
        returncode = subprocess.run(program, cwd=tmp_path).returncode
    assert returncode == 0
