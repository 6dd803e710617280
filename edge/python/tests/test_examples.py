"""The examples, each run as a program, at a small size."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import TIMEOUT_S

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, *arguments):
    command = [sys.executable, EXAMPLES / name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


@pytest.mark.parametrize("name, package", [("faiss_search.py", "faiss"), ("duckdb_query.py", "duckdb")])
def test_an_example_finds_what_is_right(name, package):
    pytest.importorskip(package, reason=f"SKIP: no {package}: type pip install yonder-memory[examples]")
    ended = run(name)
    assert ended.returncode == 0 and "right: True" in ended.stdout, ended.stdout + ended.stderr


def test_the_first_array_is_summed_up():
    ended = run("first_array.py")
    assert ended.returncode == 0 and "right: True" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.parametrize("workload", ["numpy", "pandas", "scikit-learn"])
def test_workloads_are_right_in_far_memory(workload, tmp_path):
    options = ("--size", "16MiB", "--folder", tmp_path, "--workloads", workload, "--ways", "far", "--json")
    ended = run("workloads.py", *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    local, far = map(json.loads, ended.stdout.splitlines())
    assert local["right"] and far["right"] and far["work_s"] > 0, (local, far)


def test_workloads_say_why_a_way_cannot_be_gone(monkeypatch, capsys, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES)
    import kernel_memory
    import workloads

    @contextlib.contextmanager
    def no_zram(_):
        raise kernel_memory.Missing("the kernel has no zram: type modprobe zram as root")
        yield

    monkeypatch.setattr(kernel_memory, "swap_on_zram", no_zram)
    monkeypatch.setattr(workloads, "run", lambda *_: {"fill_s": 0.0, "work_s": 0.0, "answers": [1.0]})
    options = ["--workloads", "numpy", "--ways", "zram", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["workloads.py", *options])
    assert workloads.main() == 0
    said = capsys.readouterr().out
    assert "SKIP: the kernel has no zram: type modprobe zram as root" in said and "yes" in said
