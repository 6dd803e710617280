"""Pages that cannot be had: what becomes an exception, and what ends the process."""

import subprocess
import sys
import textwrap

import numpy
import pytest

import yonder
from conftest import TIMEOUT_S

# A far array of 16 MiB of which 4 MiB are local, on a node that is gone; says when that is to happen.
LOST = """
    import sys, numpy, yonder
    memory = yonder.open(sys.argv[1], local="4MiB", memory="64MiB", deadline="300ms")
    numbers = memory.array(numpy.arange(2_000_000, dtype=numpy.int64))
    print("ready", flush=True)
    sys.stdin.readline()
    def caught(work, *arguments, **keywords):
        try:
            work(*arguments, **keywords)
        except yonder.PagingError as error:
            assert isinstance(error, OSError) and error.node == memory.url, error
            first = numbers.ctypes.data
            assert first - 4096 < error.address < first + numbers.nbytes, error
            assert error.cause in str(error) and "\\n" not in str(error), error
            return True
        return False
"""
END = """
    import os
    print("done", flush=True)
    os._exit(0)
"""


def lose(node, program):
    """Runs a program whose node is gone once it is ready."""
    program = "\n".join(textwrap.dedent(part) for part in (LOST, program, END))
    command = [sys.executable, "-c", program, node.url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            node.kill()
            output, errors = process.communicate("\n", timeout=TIMEOUT_S)
        finally:
            process.kill()
    return process.returncode, output, errors


def test_copies_raise(node):
    code, output, errors = lose(
        node,
        """
        assert caught(yonder.read, numbers)
        assert caught(yonder.write, numbers, 5)
        assert caught(yonder.prefetch, numbers[:200_000])
        with open("/dev/null", "wb") as file:
            assert caught(yonder.tofile, numbers, file)
        """,
    )
    assert (code, output) == (0, "done\n"), errors


def test_ufuncs_raise_in_an_attempt_and_python_goes_on(node):
    code, output, errors = lose(
        node,
        """
        import threading
        for _ in range(3):
            assert caught(yonder.attempt, numpy.add.reduce, numbers)
            assert caught(yonder.attempt, numpy.add, numbers, 1)
            assert caught(yonder.attempt, numpy.add, numbers[:300], 1), "the interpreter's lock is held in short loops"
            assert caught(yonder.attempt, numpy.multiply, numpy.ones(2_000_000), 2.0, out=numbers, casting="unsafe")
        assert yonder.attempt(numpy.add.reduce, numpy.arange(10)) == 45
        # Locks, threads and the collector are as they were.
        import gc
        gc.collect()
        seen = []
        threads = [threading.Thread(target=lambda: seen.append(numpy.arange(100_000).sum())) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(set(seen)) == 1 and len(seen) == 4
        failed = []
        thread = threading.Thread(target=lambda: failed.append(caught(yonder.attempt, numpy.negative, numbers)))
        thread.start()
        thread.join()
        assert failed == [True]
        """,
    )
    assert (code, output) == (0, "done\n"), errors


def test_a_touch_anywhere_else_ends_the_process_with_one_line(node):
    code, output, errors = lose(node, "print(numbers.sum())")
    assert code == -6 and output == ""
    lines = errors.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("yonder: paging error at address 0x"), errors
    assert node.url.removeprefix("tcp://") in lines[0]


def test_an_attempt_that_succeeds_returns_what_was_computed(memory):
    numbers = memory.array(numpy.arange(1_000_000.0))
    out = memory.empty(1_000_000)
    assert yonder.attempt(numpy.add.reduce, numbers) == numbers.sum()
    assert yonder.attempt(numpy.multiply, numbers, 2, out=out) is out and out[-1] == 1_999_998
    assert (yonder.attempt(numpy.add.accumulate, numbers)[:4] == [0, 1, 3, 6]).all()
    assert (yonder.attempt(numpy.divmod, numbers, 7)[1] == numpy.arange(1_000_000) % 7).all()
    with pytest.raises(ValueError, match="broadcast"):
        yonder.attempt(numpy.add, numbers, numpy.ones(3))


@pytest.mark.parametrize(
    "function, arguments, keywords",
    [
        (print, (), {}),
        (numpy.sum, (numpy.ones(3),), {}),
        (numpy.matmul, (numpy.ones((3, 3)), numpy.ones((3, 3))), {}),
        (numpy.frompyfunc(int, 1, 1), (numpy.ones(3),), {}),
        (numpy.add.reduceat, (numpy.ones(3), numpy.array([0])), {}),
        (numpy.add, (numpy.array(["a"], object), 1), {}),
        (numpy.add, ([1], 1), {}),
        (numpy.add, (numpy.ma.ones(3), 1), {}),
        (numpy.add, (numpy.ones(3), 1), {"dtype": object}),
        (numpy.add, (numpy.ones(3), 1), {"signature": "OO->O"}),
        (numpy.add, (numpy.ones(3), 1), {"out": numpy.empty(3, object)}),
    ],
)
def test_what_cannot_be_left_in_the_middle_is_refused(function, arguments, keywords):
    with pytest.raises(TypeError):
        yonder.attempt(function, *arguments, **keywords)


def test_copies(memory):
    numbers = memory.array(numpy.arange(2_000_000))
    local = yonder.read(numbers)
    assert not yonder.is_far(local) and (local == numbers).all()
    with yonder.memory(memory):
        assert not yonder.is_far(yonder.read(numbers))
    yonder.write(numbers[1000:2000], 7)
    assert (numbers[1000:2000] == 7).all() and numbers[999] == 999 and numbers[2000] == 2000
    matrix = memory.array(numpy.arange(600_000.0).reshape(600, 1000), order="F")
    assert (yonder.read(matrix) == numpy.arange(600_000.0).reshape(600, 1000)).all()
    assert yonder.read(numbers[:0]).shape == (0,)
    with pytest.raises(ValueError, match="not contiguous"):
        yonder.read(numbers[::2])
    with pytest.raises(ValueError, match="not in far memory"):
        yonder.read(numpy.ones(3))
    numbers.flags.writeable = False
    with pytest.raises(BufferError):
        yonder.write(numbers, 0)
