"""Far memories and their arrays."""

import gc
import threading
import time

import numpy
import pytest

import yonder
from conftest import EMULATED, MIB, pattern


def test_an_array_of_four_times_local_memory_has_the_right_sum():
    start = time.monotonic()
    with yonder.open(EMULATED, local="16MiB", memory="128MiB") as memory:
        count = 64 * MIB // 8
        numbers = memory.empty(count, numpy.int64)
        numbers[:] = numpy.arange(count)
        assert numbers.sum() == count * (count - 1) // 2
        stats = memory.stats()
        assert stats.major_faults > 0 and stats.fetched_bytes >= 32 * MIB
        assert stats.local_bytes_max <= stats.local_limit_bytes == 16 * MIB
        assert stats.used_bytes >= 64 * MIB and stats.memory_bytes == 128 * MIB
    assert time.monotonic() - start < 30


def test_the_same_on_a_node(node):
    with yonder.open(node.url, local="8MiB", memory="64MiB") as memory:
        count = 32 * MIB // 8
        numbers = memory.array(pattern(count))
        assert (numbers == pattern(count)).all()
        assert memory.stats().written_bytes >= 16 * MIB


def test_arrays_are_those_of_numpy(memory):
    made = memory.empty((3, 5), numpy.int32)
    assert type(made) is numpy.ndarray and made.shape == (3, 5) and made.dtype == numpy.int32
    assert type(made.base).__name__ == "Block" and len(made.base) == 60 and yonder.is_far(made)
    assert made.flags.writeable and made.flags.c_contiguous and made.ctypes.data % 64 == 0
    assert memory.empty((3, 5), order="F").flags.f_contiguous
    assert (memory.zeros((2, 70_000)) == 0).all()
    assert memory.full(4, 7).tolist() == [7] * 4 and memory.full(4, 7).dtype == numpy.array(7).dtype
    assert memory.full((2, 2), 1.5, numpy.float32).dtype == numpy.float32
    assert memory.array([[1, 2], [3, 4]], float).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    pairs = memory.zeros(3, [("a", "u1"), ("b", "f8")])
    pairs["b"] = [1, 2, 3]
    assert pairs[1].tolist() == (0, 2.0)
    for shape in (0, (0, 3), ()):
        assert memory.empty(shape).shape == numpy.empty(shape).shape
    assert memory.array("text").tolist() == "text"


def test_zeros_are_zeros_where_memory_was_used_before(memory):
    for bytes_each in (100, 5_000, 70_000, 8 * MIB):
        for _ in range(3):
            used = memory.zeros(bytes_each, numpy.uint8)
            assert not used.any()
            used[:] = 0xA5
            del used


def test_slices_views_and_copies(memory):
    count = 3 * MIB
    expected = pattern(count)
    made = memory.array(expected)
    for part in (slice(None, None, 1013), slice(None, None, -4097), slice(5, 1_000_000), slice(2 * MIB, None)):
        assert (made[part] == expected[part]).all()
    matrix = made.reshape(1024, -1)
    assert (matrix.T[7] == expected.reshape(1024, -1).T[7]).all()
    assert (made.view(numpy.uint8)[::8] == expected.view(numpy.uint8)[::8]).all()
    copy = made[:1000].copy()
    made[:1000] = 0
    assert (copy == expected[:1000]).all() and not yonder.is_far(copy) and yonder.is_far(made[5:])
    # A view keeps the memory of the array it is of.
    tail, used = made[-1000:], memory.stats().used_bytes
    del made, matrix
    assert (tail == expected[-1000:]).all() and memory.stats().used_bytes == used
    del tail
    assert memory.stats().used_bytes < used - 16 * MIB


def test_memory_stays_until_its_last_array_is_gone():
    with yonder.open(EMULATED, local="4MiB", memory="64MiB") as memory:
        kept = memory.array(pattern(2 * MIB))
    assert memory.closed and repr(memory).startswith("<closed")
    with pytest.raises(ValueError, match="was closed: open another"):
        memory.empty(5)
    assert (kept == pattern(2 * MIB)).all()
    kept[::512] += numpy.uint64(1)
    assert (kept[::512] == pattern(2 * MIB)[::512] + numpy.uint64(1)).all()
    memory.close()
    address = kept.ctypes.data
    del kept
    gc.collect()
    with open("/proc/self/maps") as maps:
        ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    assert not any(start <= address < end for start, end in ranges), "the region is gone"


def test_the_default_memory_is_the_youngest_that_is_open():
    with pytest.raises(RuntimeError, match="call yonder.open"):
        yonder.empty(5)
    with yonder.open(EMULATED, local="4MiB", memory="16MiB") as first:
        with yonder.open(EMULATED, local="4MiB", memory="32MiB"):
            assert yonder.stats().memory_bytes == 32 * MIB
        assert yonder.stats().memory_bytes == first.stats().memory_bytes
        assert yonder.zeros(3).tolist() == yonder.full(3, 0.0).tolist() == yonder.array([0.0] * 3).tolist()
        assert yonder.is_far(yonder.empty(3)) and not yonder.is_far(numpy.empty(3))


def test_many_threads_touch_one_array(memory):
    expected, threads = pattern(2 * MIB), 6
    made = memory.zeros(len(expected), numpy.uint64)
    wrong = []

    def work(number):
        # Neighbours on each page are other threads'.
        made[number::threads] = expected[number::threads]
        if not (made[number::threads] == expected[number::threads]).all():
            wrong.append(number)

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong and (made == expected).all()


def test_threads_of_blas_touch_it(memory):
    # Larger than local memory together, and than what is multiplied by one thread.
    a = memory.array(numpy.random.default_rng(1).random((1000, 900)))
    b = memory.array(numpy.random.default_rng(2).random((900, 800)))
    product = memory.empty((1000, 800))
    numpy.matmul(a, b, out=product)
    assert numpy.allclose(product, a.copy() @ b.copy())


def test_advice_and_prefetching(memory):
    made = memory.array(pattern(4 * MIB))
    yonder.advise(made[: MIB // 8], "out")
    yonder.advise(made, "normal")
    part = made[-MIB // 8 :]
    yonder.advise(part, "ahead")
    made[: 2 * MIB].sum()
    before = memory.stats().major_faults
    yonder.prefetch(part)
    fetched = memory.stats().major_faults
    assert fetched > before
    assert (part == pattern(4 * MIB)[-MIB // 8 :]).all()
    assert memory.stats().major_faults - fetched < 16, "it was here"
    yonder.prefetch(made[:0])
    for function in (lambda: yonder.prefetch(numpy.empty(5)), lambda: yonder.advise(numpy.empty(5), "out")):
        with pytest.raises(ValueError, match="not in far memory"):
            function()
    with pytest.raises(ValueError, match="half of local memory: prefetch at most 2 MiB"):
        yonder.prefetch(made)
    with pytest.raises(ValueError, match="advice is 'soon': give ahead"):
        yonder.advise(made, "soon")


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        (dict(url="nowhere"), ValueError, "nowhere"),
        (dict(url="shm:///no/such/socket"), ConnectionError, "/no/such/socket"),
        (dict(local="1KiB"), ValueError, "give at least 2 MiB"),
        (dict(local="much"), ValueError, "such as 64MiB"),
        (dict(memory=0), ValueError, "give 1 to 8.0 TiB"),
        (dict(prefetch="all"), ValueError, "give none, readahead or trend"),
        (dict(deadline="5"), ValueError, "such as 2.5us"),
    ],
)
def test_settings_that_cannot_work_say_what_to_give(arguments, error, text):
    with pytest.raises(error, match=text) as caught:
        yonder.open(**{"url": EMULATED, "local": "4MiB", "memory": "16MiB", **arguments})
    assert "\n" not in str(caught.value)


def test_what_cannot_be_made(memory):
    with pytest.raises(TypeError, match="objects cannot be far"):
        memory.empty(5, object)
    with pytest.raises(MemoryError, match="no room for 1.0 TiB: .* of 256 MiB are used; open more"):
        memory.empty(1 << 40, numpy.uint8)
    with pytest.raises(ValueError, match="negative length"):
        memory.empty((-1, 5))


def test_a_handler_that_replaces_the_one_of_faults_is_noticed(run):
    program = """
        import faulthandler, yonder
        memory = yonder.open("emu://", local="4MiB", memory="16MiB")
        faulthandler.enable()
        try:
            memory.empty(5)
        except RuntimeError as error:
            print(error)
    """
    assert "call faulthandler.enable() and signal.signal() before yonder.open()" in run(program).stdout
    program = """
        import faulthandler, yonder
        faulthandler.enable()
        memory = yonder.open("emu://", local="4MiB", memory="64MiB")
        print(memory.full(4_000_000, 1.0).sum())
    """
    assert run(program).stdout == "4000000.0\n"
