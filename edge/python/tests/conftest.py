"""What the tests have in common: far memories, a node of their own, and programs that run beside pytest."""

import os
import subprocess
import sys
import textwrap

import numpy
import pytest

import yonder

EMULATED = "emu://?latency=2us&gbps=100"
"""The emulated link is fast, so that tests are."""
MIB = 1 << 20
TIMEOUT_S = 60
"""The second where something has to answer, on a machine that may be busy."""


def pytest_configure():
    try:
        yonder.open(EMULATED, local="2MiB", memory="1MiB").close()
    except PermissionError as error:
        pytest.exit(f"SKIP: {error}", returncode=0)


@pytest.fixture
def memory():
    """Emulated far memory, of which 4 MiB are local."""
    with yonder.open(EMULATED, local=4 * MIB, memory=256 * MIB) as memory:
        yield memory


class Node:
    """A `yonder node` of a test's own."""

    def __init__(self, binary, memory="256MiB", scheme="tcp"):
        command = [binary, "node", "--listen", f"{scheme}://127.0.0.1:0", "--memory", memory]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if line.rstrip().endswith("Ctrl-C ends it"):
                self.url = next(word.rstrip(";,") for word in line.split() if word.startswith(scheme))
                return
        raise RuntimeError("the node has ended")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


@pytest.fixture
def node():
    """A memory node, in a process of its own."""
    binary = os.environ.get("YONDER_BIN")
    if not binary:
        pytest.skip("SKIP: YONDER_BIN names no yonder: type cargo xtask python --try")
    node = Node(binary)
    yield node
    node.kill()


@pytest.fixture
def run():
    """Runs a program in a Python of its own, and says how it ended."""

    def run(program, *arguments, **options):
        command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, **options)

    return run


def pattern(count):
    """Numbers that tell their places."""
    return numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
