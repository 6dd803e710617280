"""The types that the package says it has."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def check(*arguments, cwd):
    pytest.importorskip("mypy", reason="SKIP: no mypy: type pip install mypy")
    ended = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=cwd)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_program_that_uses_all_of_it_is_well_typed(tmp_path):
    check("mypy", "--strict", str(HERE / "typed_sample.py"), cwd=tmp_path)


def test_the_package_is_well_typed(tmp_path):
    check("mypy", "--strict", "--package", "yonder", cwd=tmp_path)


def test_the_stubs_are_those_of_the_extension(tmp_path):
    check("mypy.stubtest", "yonder._yonder", cwd=tmp_path)
