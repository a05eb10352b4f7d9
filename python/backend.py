"""The build backend: maturin, after the command is put where the wheel takes it from.

A wheel has two parts: the package with its native module, and the command `flashvm` for the environment's `bin`. maturin
builds the first; this file builds the other with Cargo and leaves it in `flashvm.data`. Run as a script it does only
that, for `maturin build`.

FLASHVM_BUILT names a folder with a command that is built already.
"""

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DATA = HERE / "flashvm.data"
COMMAND = DATA / "scripts" / "flashvm"


def prepare() -> None:
    """Put the command into `flashvm.data`."""
    target = Path(os.environ.setdefault("CARGO_TARGET_DIR", str(ROOT / "target")))
    built = os.environ.get("FLASHVM_BUILT")
    if built is None:
        subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
        folder = ROOT / target / "release"
    else:
        folder = Path(built)
    COMMAND.parent.mkdir(parents=True, exist_ok=True)
    built = folder / "flashvm"
    if not built.is_file():
        raise SystemExit(f"{built}: no such file: unset FLASHVM_BUILT, or name a folder with flashvm")
    if strip := shutil.which("strip"):
        subprocess.run([strip, "-o", COMMAND, built], check=True)
    else:
        shutil.copyfile(built, COMMAND)
    COMMAND.chmod(0o755)


def _maturin():
    import maturin

    return maturin


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    prepare()
    return _maturin().build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    prepare()
    return _maturin().build_editable(wheel_directory, config_settings, metadata_directory)


class UnsupportedOperation(Exception):
    """What PEP 517 has for a backend that cannot make a source distribution."""


def build_sdist(sdist_directory, config_settings=None):
    raise UnsupportedOperation("the command needs the whole repository: build a wheel from a clone of it")


if __name__ == "__main__":
    prepare()
