"""Far memories, and the arrays that are made in them."""

import contextlib
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex

import numpy
import numpy.typing

from yonder import _yonder

Shape = SupportsIndex | Sequence[SupportsIndex]
Order = Literal["C", "F"]
Size = int | str

FAR_BYTES_MIN = "64KiB"


class Stats(NamedTuple):
    """How full a far memory is, and what it did since it was opened. Sizes are in bytes."""

    memory_bytes: int
    """can be allocated"""
    used_bytes: int
    """of the pages in which something is allocated, or kept ready by threads"""
    used_bytes_max: int
    """most of them, as far as anybody has looked"""
    local_limit_bytes: int
    """may be local"""
    local_bytes: int
    """are local"""
    local_bytes_max: int
    """most that were"""
    major_faults: int
    """touches that waited for the node"""
    minor_faults: int
    """touches of what was not mapped, but here"""
    fetched_bytes: int
    """came from the node"""
    written_bytes: int
    """went there"""


class Memory:
    """A far memory. Made by `yonder.open`.

    Its arrays keep it: after `close`, or the end of `with`, nothing can be allocated in it any more, and its bytes go
    back to the node when the last array is gone.
    """

    __slots__ = ("_far",)

    def __init__(self, far: _yonder.Far) -> None:
        self._far = far

    def empty(
        self, shape: Shape, dtype: numpy.typing.DTypeLike = float, order: Order = "C"
    ) -> numpy.ndarray[Any, Any]:
        """A far array with any content, as `numpy.empty`."""
        return self._take(shape, dtype, order, zeros=False)

    def zeros(
        self, shape: Shape, dtype: numpy.typing.DTypeLike = float, order: Order = "C"
    ) -> numpy.ndarray[Any, Any]:
        """A far array of zeros, as `numpy.zeros`. Its pages take no memory before they are written."""
        return self._take(shape, dtype, order, zeros=True)

    def full(
        self, shape: Shape, value: Any, dtype: numpy.typing.DTypeLike | None = None, order: Order = "C"
    ) -> numpy.ndarray[Any, Any]:
        """A far array that is full of a value, as `numpy.full`."""
        made = self.empty(shape, numpy.asarray(value).dtype if dtype is None else dtype, order)
        made[...] = value
        return made

    def array(
        self, values: numpy.typing.ArrayLike, dtype: numpy.typing.DTypeLike | None = None, order: Order = "C"
    ) -> numpy.ndarray[Any, Any]:
        """A far copy of an array, of a memory-mapped file, or of anything that NumPy makes an array of."""
        values = numpy.asarray(values)
        made = self.empty(values.shape, values.dtype if dtype is None else dtype, order)
        made[...] = values
        return made

    def seal(self, values: numpy.typing.ArrayLike) -> numpy.ndarray[Any, Any]:
        """A far copy of an array that is read-only for good: its flag `writeable` cannot be set.

        The node has all of it when this returns, so its pages leave local memory without being compared or written. It
        lies beside what `memory` bytes are for, and a process has room for some sixty. Raises `PagingError` if a page
        cannot be had.
        """
        values = numpy.asarray(values)
        _check_plain(values.dtype)
        if not (values.flags.c_contiguous or values.flags.f_contiguous):
            values = self.array(values)
        # NumPy's own stubs do not know that it takes every buffer.
        block: Any = self._far.seal(values.ravel(order="K").view(numpy.uint8))
        order: Order = "C" if values.flags.c_contiguous else "F"
        return numpy.ndarray(values.shape, values.dtype, buffer=block, order=order)

    def stats(self) -> Stats:
        """How full it is, and what it did."""
        return Stats(**self._far.stats())

    @property
    def url(self) -> str:
        """Where its pages are."""
        return self._far.url

    @property
    def closed(self) -> bool:
        """Whether it was closed: arrays of it may still be there."""
        return self._far.closed

    def close(self) -> None:
        """Allocates nothing any more. The memory goes back when its last array is gone."""
        self._far.close()
        with contextlib.suppress(ValueError):
            _open.remove(self)

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}far memory on {self.url}>"

    def _take(
        self, shape: Shape, dtype: numpy.typing.DTypeLike, order: Order, *, zeros: bool
    ) -> numpy.ndarray[Any, Any]:
        dtype = numpy.dtype(dtype)
        _check_plain(dtype)
        lengths = _lengths(shape)
        if any(length < 0 for length in lengths):
            raise ValueError(f"the shape {lengths} has a negative length: give lengths from 0 on")
        block: Any = self._far.take(math.prod(lengths) * dtype.itemsize, zeros=zeros)
        return numpy.ndarray(lengths, dtype, buffer=block, order=order)


def _check_plain(dtype: numpy.dtype[Any]) -> None:
    if dtype.hasobject:
        raise TypeError(f"objects cannot be far, and dtype {dtype} has some: give a dtype of plain values")


def _lengths(shape: Shape) -> tuple[int, ...]:
    try:
        return (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        return tuple(operator.index(length) for length in shape)  # type: ignore[union-attr]


_open: list[Memory] = []
"""What was opened and not closed, the youngest last."""


def open(
    url: str,
    local: Size = "1GiB",
    memory: Size = "4GiB",
    *,
    prefetch: str = "readahead",
    deadline: str = "5s",
) -> Memory:
    """Opens far memory, which is the one of `yonder.empty` and its kin from now on.

    `url` says where its pages are: `tcp://host:port`, `udp://host:port` or `shm:///path` of a `yonder node`,
    `file:///path`, or `emu://` for emulated far memory in this process. `memory` bytes can be allocated, of which at
    most `local` are local at a time. `prefetch` says what is fetched before it is touched: `"none"`, `"readahead"` or
    `"trend"`. A touch waits for its page until `deadline`.
    """
    opened = Memory(_yonder.Far(url, local, memory, prefetch, deadline))
    _open.append(opened)
    return opened


def default() -> Memory:
    """The memory that was opened last and is not closed."""
    if not _open:
        raise RuntimeError("no far memory is open: call yonder.open(url) first")
    return _open[-1]


def empty(shape: Shape, dtype: numpy.typing.DTypeLike = float, order: Order = "C") -> numpy.ndarray[Any, Any]:
    """`Memory.empty` of the memory that was opened last."""
    return default().empty(shape, dtype, order)


def zeros(shape: Shape, dtype: numpy.typing.DTypeLike = float, order: Order = "C") -> numpy.ndarray[Any, Any]:
    """`Memory.zeros` of the memory that was opened last."""
    return default().zeros(shape, dtype, order)


def full(
    shape: Shape, value: Any, dtype: numpy.typing.DTypeLike | None = None, order: Order = "C"
) -> numpy.ndarray[Any, Any]:
    """`Memory.full` of the memory that was opened last."""
    return default().full(shape, value, dtype, order)


def array(
    values: numpy.typing.ArrayLike, dtype: numpy.typing.DTypeLike | None = None, order: Order = "C"
) -> numpy.ndarray[Any, Any]:
    """`Memory.array` of the memory that was opened last."""
    return default().array(values, dtype, order)


def seal(values: numpy.typing.ArrayLike) -> numpy.ndarray[Any, Any]:
    """`Memory.seal` of the memory that was opened last."""
    return default().seal(values)


def stats() -> Stats:
    """`Memory.stats` of the memory that was opened last."""
    return default().stats()


@contextlib.contextmanager
def memory(far: Memory | None = None, *, at_least: Size = FAR_BYTES_MIN) -> Iterator[Memory]:
    """What NumPy allocates inside is far, from `at_least` bytes on; also what pandas or scikit-learn allocate by it.

    That holds for the thread or asynchronous task that is inside, not for others that it starts. Arrays may outlive the
    context: each knows how it is freed. `far` is the memory that was opened last, unless another is given.
    """
    far = default() if far is None else far
    before = _yonder.set_handler(far._far.handler(_yonder.bytes_of(at_least)))
    try:
        yield far
    finally:
        _yonder.set_handler(before)
