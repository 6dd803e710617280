"""The notebooks of the documentation, each run from its first cell to its last."""

import os
from pathlib import Path

import pytest

from conftest import TIMEOUT_S

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
START_NODES = ("4-", "5-")
"""How the names of those begin that start nodes."""


def test_there_are_five():
    assert [notebook.name[0] for notebook in NOTEBOOKS] == list("12345")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_checked_in_without_outputs(path, tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="SKIP: no nbclient: type pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="SKIP: no ipykernel: type pip install nbclient ipykernel")
    import nbformat

    if path.name.startswith(START_NODES) and not os.environ.get("YONDER_BIN"):
        pytest.skip("SKIP: YONDER_BIN names no yonder: type cargo xtask python --try")
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    client = nbclient.NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3")
    client.execute(cwd=str(tmp_path))
    assert all(cell.execution_count for cell in code)
