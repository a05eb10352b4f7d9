"""Every Python sample of README.md and docs/python.md runs, with the names that its reader would have."""

import os
import re
import subprocess
import sys

import numpy
import pytest
from conftest import GCC, ROOT

import flashvm

PRELUDE = """
import numpy
import flashvm
from flashvm import sim
array = keys = numpy.arange(10_000) % 977
table = numpy.zeros((1024, 1024))
samples = numpy.zeros(1 << 17)
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
    numpy.arange(1000.0).tofile(tmp_path / "samples.f8")
    if "flashvm.start" not in block and any(name in block for name in ("flashvm.advise", "flashvm.empty", "flashvm.stats")):
        returncode = flashvm.run(program, ram="96M", cwd=tmp_path).returncode
    else:
        returncode = subprocess.run(program, cwd=tmp_path).returncode
    assert returncode == 0


def test_the_tutorial_runs_from_its_first_line_to_its_last(tmp_path, command):
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/tutorial.md").read_text(), re.M | re.S)
    assert len(blocks) >= 8
    path = f"{os.path.dirname(command)}:{os.path.dirname(os.path.realpath(sys.executable))}:{os.environ['PATH']}"
    for block in blocks:
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=tmp_path, env={**os.environ, "PATH": path},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, block + done.stdout + done.stderr
    assert (tmp_path / "run.html").stat().st_size > 10_000


def test_the_book_builds(tmp_path):
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", ROOT / "docs", tmp_path / "book"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "book" / "tutorial.html").exists()
