"""What is done with far arrays: advice, copies that can fail, files."""

from typing import Any, BinaryIO

import numpy
from numpy.lib.array_utils import byte_bounds

from yonder import _yonder

Array = numpy.ndarray[Any, Any]

PIECE_BYTES = 1 << 20
"""Bytes that are copied at once between a far array and a file."""

NUMBERS = "biufc"
"""The kinds of numbers, as `numpy.dtype.kind` says them."""

KEYWORDS = {"axis", "casting", "dtype", "initial", "keepdims", "order", "out", "where"}
"""What a ufunc may be told in `attempt`."""


def is_far(array: Array) -> bool:
    """Whether an array, or the array that it is a view of, lies in far memory."""
    return _yonder.is_far(byte_bounds(array)[0])


def advise(array: Array, advice: str) -> None:
    """Says how an array, or a slice of one, will be touched. Nothing but speed depends on it.

    `"ahead"`: as a whole, so a touch of a page that has to be fetched fetches others of it, too. `"random"`: nothing is
    fetched ahead. `"normal"`: ends these two. `"out"`: not soon, so its pages are the first to leave local memory.
    """
    first, end = byte_bounds(array)
    _yonder.advise(first, end - first, advice)


def prefetch(array: Array) -> None:
    """Brings the pages of an array, or of a slice of one, many at once, and returns when they are here.

    That can be half of local memory at most. Raises `PagingError` if a page cannot be had.
    """
    first, end = byte_bounds(array)
    if array.size:
        _yonder.prefetch(first, end - first)


def read(array: Array) -> Array:
    """A local copy of a far array, or of a slice that is contiguous. Raises `PagingError` if a page cannot be had."""
    local = _local(array)
    if array.size:
        _yonder.read(_bytes_of(array), _bytes_of(local))
    return local


def write(array: Array, values: numpy.typing.ArrayLike) -> None:
    """Sets a far array, or a slice that is contiguous, to values. Raises `PagingError` if a page cannot be had.

    A part may be written then.
    """
    local = _local(array)
    local[...] = values
    if array.size:
        _yonder.write(_bytes_of(array), _bytes_of(local))


def attempt(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Calls a ufunc, or its `reduce` or `accumulate`, so that a page that cannot be had raises `PagingError`.

        total = yonder.attempt(numpy.add.reduce, numbers)

    Arguments are arrays of numbers and numbers. After an error the outputs hold anything, and what the call had
    allocated is lost. Nothing else that is called can be left in the middle: where a page cannot be had there, the
    process ends.
    """
    _check_call(function, arguments, keywords)
    return _yonder.attempt(function, arguments, keywords)


def tofile(array: Array, file: BinaryIO) -> None:
    """Writes the bytes of a far array to a file that is open for them, as `numpy.ndarray.tofile`, which cannot."""
    data = _bytes_of(array)
    for start in range(0, len(data), PIECE_BYTES):
        file.write(_local_bytes(data[start : start + PIECE_BYTES]))


def readinto(file: BinaryIO, array: Array) -> None:
    """Fills a far array with bytes of a file, as `file.readinto(array)`, which cannot."""
    data = _bytes_of(array)
    for start in range(0, len(data), PIECE_BYTES):
        piece = data[start : start + PIECE_BYTES]
        read_now = file.read(len(piece))
        if len(read_now) < len(piece):
            raise EOFError(f"the file ends {len(data) - start - len(read_now)} bytes before the array is full")
        write(piece, numpy.frombuffer(read_now, numpy.uint8))


def _local_bytes(piece: Array) -> memoryview:
    return (read(piece) if is_far(piece) else piece).data


def _bytes_of(array: Array) -> Array:
    if array.dtype.hasobject or not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError("the array is not contiguous, or has objects: give a slice that is in one piece")
    return array.ravel(order="K").view(numpy.uint8)


def _local(array: Array) -> Array:
    before = _yonder.set_handler(None)
    try:
        return numpy.empty_like(array, subok=False)
    finally:
        _yonder.set_handler(before)


def _check_call(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    ufunc = function
    if getattr(function, "__name__", None) in ("reduce", "accumulate"):
        ufunc = getattr(function, "__self__", None)
    # One of others, or one that calls BLAS, may hold a lock while it touches an array, or call Python.
    is_plain = isinstance(ufunc, numpy.ufunc) and ufunc.signature is None
    if not is_plain or getattr(numpy, ufunc.__name__, None) is not ufunc:
        raise TypeError(f"{function!r} is no ufunc of NumPy's on elements: only these can be left in the middle")
    unknown = keywords.keys() - KEYWORDS
    if unknown:
        raise TypeError(f"the keyword {sorted(unknown)[0]!r} is not known here: give {', '.join(sorted(KEYWORDS))}")
    if keywords.get("dtype") is not None and numpy.dtype(keywords["dtype"]).kind not in NUMBERS:
        raise TypeError(f"dtype {keywords['dtype']!r} is not one of numbers")
    out = keywords.get("out")
    values = (*arguments, *(out if isinstance(out, tuple) else (out,)), keywords.get("where"), keywords.get("initial"))
    for value in values:
        if value is None or isinstance(value, bool | int | float | complex | numpy.number | numpy.bool):
            continue
        if type(value) is not numpy.ndarray or value.dtype.kind not in NUMBERS:
            raise TypeError(f"an argument is a {type(value).__name__}: give arrays of numbers, and numbers")
