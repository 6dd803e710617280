"""An array of four times the local memory, and its sum.

    python first_array.py [URL]
"""

import sys
import time

import numpy
import yonder

LOCAL_BYTES = 64 << 20
SECONDS_MAX = 30
PIECE = 1 << 20


def main() -> int:
    began = time.perf_counter()
    url = sys.argv[1] if len(sys.argv) > 1 else "emu://"
    count = 4 * LOCAL_BYTES // 8
    with yonder.open(url, local=LOCAL_BYTES, memory=5 * LOCAL_BYTES) as memory:
        numbers = yonder.empty(count, numpy.int64)
        for start in range(0, count, PIECE):
            numbers[start : start + PIECE] = numpy.arange(start, min(start + PIECE, count))
        total, stats = int(numbers.sum()), memory.stats()
    took = time.perf_counter() - began
    right = total == count * (count - 1) // 2 and stats.local_bytes_max <= LOCAL_BYTES
    print(f"{numbers.nbytes >> 20} MiB, of which {stats.local_bytes_max >> 20} MiB were local at most, on {memory.url}:")
    print(f"the sum is {total}, after {took:.1f} s; right: {right}")
    return 0 if right and took < SECONDS_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
