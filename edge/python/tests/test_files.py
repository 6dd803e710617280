"""Files and other system calls: the kernel does not fetch."""

import io

import numpy
import pytest

import yonder
from conftest import MIB, pattern


def test_the_kernel_refuses_what_is_not_local(memory, tmp_path):
    made = memory.array(pattern(2 * MIB))
    with pytest.raises(OSError), open(tmp_path / "short", "wb") as file:
        made.tofile(file)
    (tmp_path / "zeros").write_bytes(bytes(16 * MIB))
    with pytest.raises(OSError), open(tmp_path / "zeros", "rb", buffering=0) as file:
        count = file.readinto(made)
        if count < made.nbytes:
            raise OSError("it stopped half way")
    # Nothing was lost, and what the kernel has not written is as it was.
    assert (made[-MIB:] == pattern(2 * MIB)[-MIB:]).all()


def test_files_are_written_and_read_in_pieces(memory, tmp_path):
    made = memory.array(pattern(2 * MIB + 77))
    path = tmp_path / "numbers"
    with open(path, "wb") as file:
        yonder.tofile(made, file)
    assert (numpy.fromfile(path, numpy.uint64) == made).all()
    again = memory.zeros(len(made), numpy.uint64)
    with open(path, "rb") as file:
        yonder.readinto(file, again)
    assert (again == made).all()
    with open(path, "rb") as file, pytest.raises(EOFError, match="ends 8 bytes before the array is full"):
        yonder.readinto(file, memory.zeros(len(made) + 1, numpy.uint64))


def test_copies_of_mapped_files_and_of_files_that_numpy_reads(memory, tmp_path):
    path = tmp_path / "numbers.npy"
    numpy.save(path, pattern(2 * MIB))
    assert (memory.array(numpy.load(path, mmap_mode="r")) == pattern(2 * MIB)).all()
    assert (memory.array(numpy.memmap(path, numpy.uint8))[:6] == list(b"\x93NUMPY")).all()
    with yonder.memory(memory):
        assert (numpy.array(numpy.load(path, mmap_mode="r")) == pattern(2 * MIB)).all()


def test_numpy_saves_to_what_is_no_file(memory):
    made, stream = memory.array(pattern(2 * MIB)), io.BytesIO()
    numpy.save(stream, made)
    stream.seek(0)
    assert (numpy.load(stream) == made).all()
