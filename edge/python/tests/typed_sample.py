"""A program that uses all of the package, for the type checker: nothing runs it."""

import io
from typing import Any, assert_type

import numpy

import yonder

Array = numpy.ndarray[Any, Any]


def arrays() -> None:
    with yonder.open("emu://", local="64MiB", memory=1 << 30, prefetch="trend", deadline="1s") as memory:
        assert_type(memory, yonder.Memory)
        assert_type(memory.url, str)
        assert_type(memory.closed, bool)
        made: list[Array] = [
            yonder.empty(5),
            yonder.zeros((2, 3), numpy.int64, "F"),
            yonder.full(5, 1.0),
            yonder.array([1, 2, 3], dtype="u1"),
            yonder.seal(numpy.ones(3)),
            memory.empty(5),
            memory.zeros((2, 3)),
            memory.full((5,), 7, numpy.float32),
            memory.array(numpy.ones(3)),
            memory.seal([1.0]),
            yonder.read(yonder.empty(5)),
        ]
        yonder.write(made[0], 5)
        yonder.advise(made[0][1:], "ahead")
        yonder.prefetch(made[0])
        yonder.tofile(made[0], io.BytesIO())
        yonder.readinto(io.BytesIO(), made[0])
        assert_type(yonder.is_far(made[0]), bool)
        assert_type(yonder.stats(), yonder.Stats)
        assert_type(memory.stats().major_faults, int)
        yonder.attempt(numpy.add, made[0], 1, out=made[0])
        with yonder.memory(memory, at_least="1MiB") as inside:
            assert_type(inside, yonder.Memory)


def dictionaries() -> None:
    with yonder.Dictionary("tcp://127.0.0.1:7070", deadline="1s") as shared:
        assert_type(shared, yonder.Dictionary)
        assert_type(shared.ticket, str)
        shared["key"] = b"value"
        shared[b"key"] = bytearray(5)
        assert_type(shared["key"], bytes)
        assert_type(shared.setdefault("key", b""), bytes)
        assert_type(list(shared), list[bytes])
        assert_type(dict(shared.items()), dict[bytes, bytes])
        del shared["key"]


def errors() -> str:
    try:
        arrays()
    except yonder.PagingError as error:
        return f"{error.node} {error.address:#x} {error.cause}"
    except yonder.NodeError as error:
        return error.node
    return yonder.__version__
