"""Forked children, and processes that Python starts otherwise."""

import multiprocessing
import os
import subprocess
import sys

import pytest

import yonder
from conftest import EMULATED, MIB, pattern


def forked(work):
    """The exit code of a child that does some work, and ends with 0 if it returned a true value."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_has_what_its_parent_had(memory):
    made = memory.array(pattern(2 * MIB))

    def work():
        right = (made == pattern(2 * MIB)).all()
        made[:MIB] = 0
        return right and not made[:MIB].any()

    assert forked(work) == 0
    assert (made == pattern(2 * MIB)).all(), "what a child writes is its own"
    made[5] = 1
    assert forked(lambda: made[5] == 1 and forked(lambda: made[5] == 1) == 0) == 0


def test_a_child_allocates_in_memory_of_its_own(memory):
    made = memory.array(pattern(MIB))

    def refused():
        with pytest.raises(RuntimeError, match="open another by yonder.open"):
            memory.empty(5)
        return True

    def own():
        with yonder.open(EMULATED, local="4MiB", memory="32MiB") as mine:
            return (mine.array(made) == pattern(MIB)).all()

    assert forked(refused) == 0 and forked(own) == 0


def test_a_child_ends_as_python_ends(run):
    program = """
        import os, numpy, yonder
        memory = yonder.open("emu://", local="4MiB", memory="64MiB")
        made = memory.full(2_000_000, 1.0)
        with yonder.memory():
            more = numpy.ones(1_000_000)
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), made.sum() + more.sum())
    """
    ended = run(program)
    assert (ended.returncode, ended.stdout) == (0, "0 3000000.0\n"), ended.stderr


def test_a_pool_of_forked_workers_reads_an_array(run):
    program = """
        import multiprocessing, numpy, yonder
        memory = yonder.open("emu://", local="4MiB", memory="64MiB")
        made = memory.array(numpy.arange(4_000_000))
        def part(number):
            return int(made[number * 1_000_000 : (number + 1) * 1_000_000].sum())
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(sum(pool.map(part, range(4))) == made.sum())
    """
    ended = run(program)
    assert ended.stdout == "True\n", ended.stderr


def test_a_page_that_only_the_parent_could_fetch_is_an_error(node):
    with yonder.open(node.url, local="4MiB", memory="64MiB") as memory:
        made = memory.array(pattern(2 * MIB))

        def work():
            with pytest.raises(yonder.PagingError, match="a forked process has only"):
                yonder.read(made)
            return True

        assert forked(work) == 0
        assert (made == pattern(2 * MIB)).all()


def test_other_programs_start_as_ever(memory):
    made = memory.array(pattern(2 * MIB))
    said = subprocess.run([sys.executable, "-c", "print(5)"], capture_output=True, text=True, check=True).stdout
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.map(abs, [-5]) == [5] and said == "5\n"
    assert (made == pattern(2 * MIB)).all()
