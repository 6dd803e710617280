"""Arrays that are sealed."""

import ctypes
import os

import numpy
import pytest

import yonder
from conftest import MIB, pattern


def test_a_sealed_array_is_the_same_and_cannot_be_written(memory):
    made = memory.array(pattern(2 * MIB))
    sealed = yonder.seal(made)
    made[:] = 0
    assert yonder.is_far(sealed) and (sealed == pattern(2 * MIB)).all()
    assert not sealed.flags.writeable and not sealed[5:].flags.writeable
    for write in (
        lambda: sealed.__setitem__(0, 1),
        lambda: sealed.sort(),
        lambda: numpy.add(sealed, 1, out=sealed),
        lambda: setattr(sealed.flags, "writeable", True),
        lambda: setattr(sealed[5:].flags, "writeable", True),
    ):
        with pytest.raises(ValueError, match="(?i)read-only|writeable"):
            write()
    with pytest.raises(BufferError):
        yonder.write(sealed, 0)
    with pytest.raises(TypeError, match="not writable"):
        ctypes.c_char.from_buffer(sealed)
    assert (sealed == pattern(2 * MIB)).all()


@pytest.mark.parametrize(
    "values",
    [
        pattern(600_000).reshape(600, 1000),
        numpy.asfortranarray(numpy.arange(600_000.0).reshape(600, 1000)),
        numpy.arange(1_000_000)[::3],
        numpy.array(["2026-01-01", "2027-02-02"], "datetime64[D]"),
        numpy.array(5.0),
        numpy.empty((0, 3)),
        [1, 2, 3],
    ],
)
def test_what_can_be_sealed(memory, values):
    sealed = memory.seal(values)
    values = numpy.asarray(values)
    assert sealed.dtype == values.dtype and sealed.shape == values.shape and (sealed == values).all()
    assert sealed.flags.c_contiguous or values.flags.f_contiguous


def test_mapped_files_and_sealed_arrays_are_sealed(memory, tmp_path):
    numpy.save(tmp_path / "numbers.npy", pattern(MIB))
    sealed = memory.seal(numpy.load(tmp_path / "numbers.npy", mmap_mode="r"))
    assert (memory.seal(sealed) == pattern(MIB)).all()
    with pytest.raises(TypeError, match="objects cannot be far"):
        memory.seal(numpy.array(["a"], object))


def test_pages_of_a_sealed_array_are_not_written_again(memory):
    sealed = memory.seal(pattern(4 * MIB))
    written = memory.stats().written_bytes
    for _ in range(3):
        assert (sealed == pattern(4 * MIB)).all()
    assert memory.stats().written_bytes - written < MIB
    part = sealed[-MIB // 8 :]
    yonder.advise(part, "random")
    yonder.prefetch(part)
    assert (yonder.read(part) == part).all()
    assert yonder.attempt(numpy.add.reduce, sealed) == sealed.sum()


def test_sealed_arrays_outlive_their_memory_and_give_their_place_back(memory):
    sealed = memory.seal(pattern(2 * MIB))
    for _ in range(100):
        memory.seal(numpy.ones(10))
    memory.close()
    assert (sealed == pattern(2 * MIB)).all()


def test_a_child_reads_what_its_parent_has_sealed(memory):
    sealed = memory.seal(pattern(2 * MIB))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if (sealed == pattern(2 * MIB)).all() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (sealed == pattern(2 * MIB)).all()
