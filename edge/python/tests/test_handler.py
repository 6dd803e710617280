"""Far memory as NumPy's allocator."""

import asyncio
import threading

import numpy
import pytest

import yonder
from conftest import MIB, pattern


def test_what_numpy_allocates_inside_is_far_from_a_size_on(memory):
    with yonder.memory() as inside:
        assert inside is memory
        large, small = numpy.zeros(MIB), numpy.zeros(100)
        computed = large + 1
    assert yonder.is_far(large) and yonder.is_far(computed) and not yonder.is_far(small)
    assert large.base is None and large.flags.owndata
    assert not yonder.is_far(numpy.zeros(MIB)), "outside it is as ever"
    with yonder.memory(memory, at_least=0):
        assert yonder.is_far(numpy.zeros(100)) and yonder.is_far(numpy.empty(0))


def test_arrays_outlive_the_context_and_are_freed_by_their_own_handler(memory):
    used = memory.stats().used_bytes
    with yonder.memory(memory):
        kept = numpy.array(pattern(3 * MIB))
    assert memory.stats().used_bytes >= used + 24 * MIB and (kept == pattern(3 * MIB)).all()
    del kept
    assert memory.stats().used_bytes < used + MIB


def test_arrays_grow_and_shrink(memory):
    with yonder.memory(memory):
        made = numpy.arange(1000)
        for length in (1 << 10, 1 << 16, 1 << 20, 1 << 17, 1 << 22, 100, 1 << 15):
            kept = min(length, len(made))
            before = made[:kept].copy()
            made.resize(length, refcheck=False)
            assert yonder.is_far(made) == (length * 8 >= 65536), length
            assert (made[:kept] == before).all() and not made[kept:].any()


def test_zeros_are_zeros(memory):
    with yonder.memory(memory, at_least="4KiB"):
        for length in (600, 5_000, 300_000):
            for _ in range(3):
                made = numpy.zeros(length)
                assert yonder.is_far(made) and not made.any()
                made += 1
                del made


def test_contexts_nest_and_end_by_exceptions(memory):
    with yonder.open("emu://", local="4MiB", memory="16MiB") as other, yonder.memory(memory):
        with pytest.raises(ZeroDivisionError), yonder.memory(other):
            before = other.stats().used_bytes
            made = numpy.zeros(MIB)
            assert other.stats().used_bytes >= before + 8 * MIB
            1 / 0  # noqa: B018
        before = memory.stats().used_bytes
        mine = numpy.zeros(MIB)
        assert memory.stats().used_bytes >= before + 8 * MIB
    assert yonder.is_far(made) and yonder.is_far(mine)


def test_no_room_is_a_memory_error(memory):
    with yonder.memory(memory), pytest.raises(MemoryError):
        numpy.empty(1 << 40, numpy.uint8)


def test_other_threads_and_tasks_have_their_own(memory):
    seen = {}
    with yonder.memory(memory):
        thread = threading.Thread(target=lambda: seen.update(thread=yonder.is_far(numpy.empty(MIB))))
        thread.start()
        thread.join()

    async def inside(turn):
        with yonder.memory(memory):
            turn.set()
            await asyncio.sleep(0)
            return yonder.is_far(numpy.empty(MIB))

    async def outside(turn):
        await turn.wait()
        return yonder.is_far(numpy.empty(MIB))

    async def both():
        turn = asyncio.Event()
        return await asyncio.gather(inside(turn), outside(turn))

    assert seen == {"thread": False} and asyncio.run(both()) == [True, False]


def test_a_thread_frees_what_another_has_made(memory):
    made = []

    def make():
        with yonder.memory(memory):
            made.extend(numpy.full(MIB // 8, number) for number in range(20))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert [int(array[0]) for array in made] == list(range(20))
    made.clear()
    assert memory.stats().used_bytes < 4 * MIB


def test_pandas(memory):
    pandas = pytest.importorskip("pandas")
    generator = numpy.random.default_rng(7)
    keys, values = generator.integers(0, 50, 500_000), generator.random(500_000)
    expected = pandas.DataFrame({"key": keys, "value": values}).groupby("key")["value"].sum()
    with yonder.memory(memory):
        frame = pandas.DataFrame({"key": keys.copy(), "value": values.copy()})
        merged = frame.merge(pandas.DataFrame({"key": numpy.arange(50), "weight": 1.0}), on="key")
        sums = (merged["value"] * merged["weight"]).groupby(merged["key"]).sum()
        ordered = frame.sort_values("value", ignore_index=True)
    assert numpy.allclose(sums.to_numpy(), expected.to_numpy())
    assert ordered["value"].is_monotonic_increasing and yonder.is_far(ordered["value"].to_numpy())
    assert memory.stats().major_faults > 0


def test_scikit_learn(memory):
    cluster = pytest.importorskip("sklearn.cluster")
    generator = numpy.random.default_rng(3)
    centres = generator.random((4, 16)) * 100
    points = numpy.concatenate([centre + generator.random((20_000, 16)) for centre in centres])
    with yonder.memory(memory):
        far = points.copy()
        model = cluster.KMeans(4, n_init=1, init=centres, random_state=0).fit(far)
        labels = model.predict(far)
    assert yonder.is_far(far) and memory.stats().major_faults > 0
    assert (labels == numpy.repeat(numpy.arange(4), 20_000)).all()
    assert numpy.abs(model.cluster_centers_ - centres).max() < 1
