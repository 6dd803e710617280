"""NumPy arrays in far memory.

A far memory is memory of this process of which a part is local at a time; the rest is on a memory node (`yonder node`),
in a file, or emulated. Its arrays are NumPy's own, and a page of one that is not local is fetched when it is touched:

    import yonder

    memory = yonder.open("tcp://127.0.0.1:7070", local="64MiB", memory="1GiB")
    numbers = yonder.zeros(100_000_000)       # 800 MB, of which at most 64 MiB are local
    numbers[12_345_678] = 1.5

    with yonder.memory():                     # what NumPy, pandas or scikit-learn allocate here is far, too
        squares = numbers * numbers

    fixed = yonder.seal(numbers)              # a copy that nobody can change, whose pages leave at no cost

A touch waits for its page. If that cannot be had until the deadline, `read`, `write`, `prefetch` and `attempt` raise
`PagingError`; a touch anywhere else ends the process with one line, never with wrong bytes. System calls do not fetch:
use `tofile` and `readinto` of this package for files. Call `faulthandler.enable()` before `open`, or not at all.

`Dictionary` is the other way to use a memory node: pairs that several processes share.
"""

from yonder._arrays import advise, attempt, is_far, prefetch, read, readinto, tofile, write
from yonder._dictionary import Dictionary
from yonder._memory import Memory, Stats, array, empty, full, memory, open, seal, stats, zeros
from yonder._yonder import NodeError, PagingError, __version__

__all__ = [
    "Dictionary",
    "Memory",
    "NodeError",
    "PagingError",
    "Stats",
    "__version__",
    "advise",
    "array",
    "attempt",
    "empty",
    "full",
    "is_far",
    "memory",
    "open",
    "prefetch",
    "read",
    "readinto",
    "seal",
    "stats",
    "tofile",
    "write",
    "zeros",
]
