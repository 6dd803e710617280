"""A dictionary that several processes share: its pairs are on memory nodes, which look keys up themselves."""

import zlib
from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any

import numpy

from yonder import _yonder

if TYPE_CHECKING:
    from typing_extensions import Buffer

    # NumPy's stubs say that its arrays are buffers from Python 3.12 on.
    Value = Buffer | numpy.ndarray[Any, Any]

Key = bytes | str


class Dictionary(MutableMapping[bytes, bytes]):
    """Pairs of bytes on one node or several, as a `dict`. Every call asks a node, and is one round trip.

        shared = yonder.Dictionary("tcp://127.0.0.1:7070")
        shared["name"] = b"value"

        same = yonder.Dictionary("tcp://127.0.0.1:7070", ticket)    # in another process that got shared.ticket

    `url` is a node's, `tcp://host:port`, `udp://host:port` or `shm:///path`, or those of several with commas between
    them: a key is on one of them then, by its bytes. Without a ticket a new dictionary is made, which ends with its
    maker: when it is closed, or `lease` after the process is gone. The ticket opens it, so keep it like a password.
    Pickled, as `multiprocessing` does, it opens the same one.

    A key has 4096 bytes at most, a key with its value 65520. A `str` as a key is its UTF-8 bytes; keys that come back are
    bytes.
    Each operation on one key is seen whole or not at all by others. `pop`, `popitem`, `clear` and `update` are several
    operations. Iterating meets every key that is there all the time once, whatever others put and delete.

    A node that does not answer until `deadline`, or was restarted, raises `yonder.NodeError`; one that cannot be
    reached at all `ConnectionError`, one that is full `MemoryError`.
    """

    __slots__ = ("_deadline", "_lease", "_tables", "_ticket")

    def __init__(self, url: str, ticket: str | None = None, deadline: str = "5s", lease: str = "60s") -> None:
        urls = url.split(",")
        tickets: list[str | None] = [None] * len(urls) if ticket is None else [*ticket.split(",")]
        if len(tickets) != len(urls):
            raise ValueError(f"{len(tickets)} tickets for {len(urls)} nodes: give the URL that the ticket's maker gave")
        self._ticket, self._deadline, self._lease = ticket, deadline, lease
        self._tables = [_yonder.Table(*one, deadline, lease) for one in zip(urls, tickets, strict=True)]

    @property
    def url(self) -> str:
        """Where its pairs are."""
        return ",".join(table.url for table in self._tables)

    @property
    def ticket(self) -> str:
        """What opens it in other processes, which may read and change it."""
        if self._ticket is None:
            self._ticket = ",".join(table.ticket() for table in self._tables)
        return self._ticket

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return any(table.closed for table in self._tables)

    def close(self) -> None:
        """Lets go of it. A dictionary that was made here ends."""
        for table in self._tables:
            table.close()

    def setdefault(self, key: Key, default: "Value" = b"") -> bytes:
        """The value of a key, which is `default` from now on if it had none. Of those who do that at the same time, one
        gives it its value."""
        key, value = _bytes_of_key(key), _bytes_of(default)
        table = self._table_of(key)
        while True:
            if table.put(key, value, only_new=True):
                return value
            found = table.get(key)
            if found is not None:
                return found

    def clear(self) -> None:
        """Removes all keys that are there."""
        for key in self:
            self._table_of(key).delete(key)

    def items(self) -> ItemsView[bytes, bytes]:
        """Its pairs. One that goes while they are iterated may be left out."""
        return _Items(self)

    def values(self) -> ValuesView[bytes]:
        """Its values, as `items`."""
        return _Values(self)

    def __getitem__(self, key: Key) -> bytes:
        value = self._get(_bytes_of_key(key))
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: "Value") -> None:
        key = _bytes_of_key(key)
        self._table_of(key).put(key, _bytes_of(value), only_new=False)

    def __delitem__(self, key: Key) -> None:
        as_bytes = _bytes_of_key(key)
        if not self._table_of(as_bytes).delete(as_bytes):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes | str) and self._get(_bytes_of_key(key)) is not None

    def __iter__(self) -> Iterator[bytes]:
        for table in self._tables:
            keys, position = table.keys(0)
            yield from keys
            while position:
                keys, position = table.keys(position)
                yield from keys

    def __len__(self) -> int:
        return sum(table.len() for table in self._tables)

    def __enter__(self) -> "Dictionary":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["Dictionary"], tuple[str, str, str, str]]:
        return Dictionary, (self.url, self.ticket, self._deadline, self._lease)

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}dictionary on {self.url}>"

    def _table_of(self, key: bytes) -> _yonder.Table:
        # The same in all processes and releases, unlike `hash`.
        return self._tables[zlib.crc32(key) % len(self._tables)]

    def _get(self, key: bytes) -> bytes | None:
        return self._table_of(key).get(key)

    def _pairs(self) -> Iterator[tuple[bytes, bytes]]:
        for key in self:
            value = self._get(key)
            if value is not None:
                yield key, value


class _Items(ItemsView[bytes, bytes]):
    _mapping: Dictionary

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._mapping._pairs()


class _Values(ValuesView[bytes]):
    _mapping: Dictionary

    def __iter__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping._pairs())


def _bytes_of_key(key: Key) -> bytes:
    return key.encode() if isinstance(key, str) else _bytes_of(key)


def _bytes_of(value: "Value") -> bytes:
    if isinstance(value, bytes):
        return value
    # `bytes(5)` would be five zeros.
    buffer: Any = value
    return memoryview(buffer).tobytes()
