"""Where the command is found, and `python -m flashvm`."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

import flashvm
from flashvm._options import FLAGS


def module(*arguments, **environment):
    words = [sys.executable, "-m", "flashvm", *arguments]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment})


def test_without_the_command_nothing_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("FLASHVM", str(tmp_path / "flashvm"))
    with pytest.raises(flashvm.CommandNotFound, match="FLASHVM=.*unset FLASHVM"):
        flashvm.run(["true"])
    monkeypatch.delenv("FLASHVM")
    monkeypatch.setattr("flashvm._command._installed", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(flashvm.CommandNotFound, match="install the wheel.*FLASHVM"):
        flashvm.run(["/bin/true"])
    done = module("run", "-c", "print('ran')", FLASHVM="/nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("flashvm: FLASHVM='/nowhere' is no program")


def test_the_command_is_found_in_its_order(monkeypatch, tmp_path, command):
    other = tmp_path / "flashvm"
    shutil.copy("/bin/true", other)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(flashvm.command()) == command
    monkeypatch.setenv("FLASHVM", "flashvm")
    assert flashvm.command() == other
    monkeypatch.delenv("FLASHVM")
    monkeypatch.setattr("flashvm._command._installed", lambda: None)
    assert flashvm.command() == other


def test_a_script_runs_under_the_module(tmp_path):
    script, stats = tmp_path / "script.py", tmp_path / "stats.json"
    script.write_text("import os, sys\nprint(sys.argv[1:], 'FLASHVM_CONTROL' in os.environ)\nsys.exit(7)\n")
    done = module("run", "--ram", "64M", "--stats", stats, script, "--ram", "9")
    assert (done.returncode, done.stdout) == (7, "['--ram', '9'] True\n")
    assert "exit code 7" in done.stderr
    assert json.loads(stats.read_text())["ram_budget_pages"] == (64 << 20) // 4096


def test_modules_texts_programs_and_other_commands_run():
    assert module("run", "--quiet", "-m", "this").stdout.startswith("The Zen of Python")
    assert module("run", "--quiet", "-c", "print(5)").stdout == "5\n"
    assert module("run", "--quiet", "--", "echo", "-c", "6").stdout == "-c 6\n"
    assert "--ram" in module("run", "--help").stdout
    assert module("run", "--ram", "64M").returncode == 2
    assert module("sim", "--trace", "/nowhere", "--frames", "1").returncode == 2
    assert module().stdout.startswith("usage: python -m flashvm run")


def test_options_without_values_are_known(command):
    text = subprocess.run([command, "run", "--help"], check=True, capture_output=True, text=True).stdout
    listed = re.findall(r"^ {2,6}(?:-h, )?--([a-z-]+)( <)?", text, re.MULTILINE)
    assert len(listed) > 20
    assert {name for name, value in listed if not value} == FLAGS


def test_an_import_is_light():
    code = """
        import sys
        before = set(sys.modules)
        import flashvm
        print(*sorted(set(sys.modules) - before))
    """
    output = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    loaded = set(output.stdout.split())
    assert "flashvm" in loaded
    assert not loaded & {"subprocess", "json", "numpy", "pandas", "flashvm._native"}, loaded
