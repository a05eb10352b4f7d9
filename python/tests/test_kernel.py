"""A Jupyter kernel under flashvm, and the notebook of the examples."""

import json
import os
import subprocess
import sys

import nbclient
import nbformat
import pytest
from conftest import ROOT

NOTEBOOK = ROOT / "examples" / "larger-than-ram.ipynb"


def kernel(home, *options):
    """Installs a kernel below a folder."""
    words = [sys.executable, "-m", "flashvm", "kernel", "--user", *options]
    return subprocess.run(words, env={**os.environ, "JUPYTER_DATA_DIR": str(home)}, capture_output=True, text=True)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A kernel in 96 MiB."""
    done = kernel(tmp_path, "--ram", "96M", "--name", "small")
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    return "small"


def test_its_description_names_the_options(tmp_path, small):
    spec = json.loads((tmp_path / "kernels" / "small" / "kernel.json").read_text())
    assert spec["argv"][1:7] == ["-m", "flashvm", "run", "--quiet", "--ram", "96M"]
    assert spec["display_name"] == "Python under flashvm --ram 96M"


def test_a_cell_is_interrupted_and_the_kernel_goes_on(small):
    cells = ["x = 1", "import time; time.sleep(60)", "x + 1"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(
        notebook,
        kernel_name=small,
        timeout_func=lambda cell: 2 if "sleep" in cell.source else 60,
        interrupt_on_timeout=True,
        allow_errors=True,
    )
    client.execute()
    assert notebook.cells[1].outputs[-1].ename == "KeyboardInterrupt"
    assert notebook.cells[2].outputs[-1].data["text/plain"] == "2"


def test_the_notebook_runs_top_to_bottom(tmp_path, small):
    # Twice: what its heap has survives the kernel.
    for run in 1, 2:
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        resources = {"metadata": {"path": str(tmp_path)}}
        nbclient.NotebookClient(notebook, kernel_name=small, timeout=300, resources=resources).execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        said = "".join(output.get("text", "") for output in outputs)
        assert said.count("flashvm: ") >= 3 and f"run {run}\n" in said
        assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize(
    "options, named",
    [
        (["--ram", "much"], "'much'"),
        (["--rum", "2G"], "--rum"),
        (["script.py"], "'script.py' is no option"),
        (["--name", "a/b"], "--name a/b: use letters"),
    ],
)
def test_bad_options_leave_no_kernel(tmp_path, options, named):
    done = kernel(tmp_path, *options)
    assert done.returncode == 2
    assert named in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "kernels").exists()
