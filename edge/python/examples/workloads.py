"""NumPy, pandas and scikit-learn on more data than memory: far memory beside what the kernel has for that.

    python workloads.py --size 1GiB --folder /var/tmp --runs 3

Each workload runs in a process of its own, once for each way to have its data:

- `local`: all of it is in memory, which gives the right answers;
- `far`: far memory (`--far`, a file in `--folder` unless it is said otherwise), of which a part is local;
- `memmap`: `numpy.memmap` of files in `--folder`, in a control group with as much memory;
- `zram`: ordinary arrays in such a group, and swap on zram.

The control group counts what the process allocates after it has imported its libraries. With `far`, all that NumPy
allocates is far, too. The last two need root; a way that this machine cannot go prints `SKIP` and the reason. The times
are seconds, the medians of the runs: to fill the arrays, and to work on them.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kernel_memory
import numpy

Array = numpy.ndarray[Any, Any]
Make = Callable[[str, tuple[int, ...], Any], Array]

UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}
PIECE = 1 << 16
"""Rows that are filled, or worked on, at once."""
GROUPS = 1000
COLUMNS = 16
CENTERS = 8
RANDOM_PARTS = 1024
"""One element in so many is gathered at random."""
TOLERANCE = 1e-6


def numpy_workload(make: Make, size: int) -> tuple[Callable[[], list[float]], float]:
    """Sums in order, with strides and at random places, and a change of all of it."""
    count = size // 8
    numbers = make("numbers", (count,), float)
    began = time.perf_counter()
    for start, end in pieces(count):
        numbers[start:end] = numpy.arange(start, end) % 1013
    filled = time.perf_counter() - began

    def work() -> list[float]:
        generator = numpy.random.default_rng(1)
        total, strided, gathered = numbers.sum(), numbers[::97].sum(), 0.0
        for start, end in pieces(count // RANDOM_PARTS):
            gathered += numbers[generator.integers(0, count, end - start)].sum()
        numpy.multiply(numbers, 0.5, out=numbers)
        rows = numbers[: count // 1000 * 1000].reshape(-1, 1000)
        return [total, strided, gathered, *rows.sum(axis=0)[:3], numbers.max()]

    return work, filled


def pandas_workload(make: Make, size: int) -> tuple[Callable[[], list[float]], float]:
    """Groups, sums and joins of a frame of numbers, some rows at a time."""
    import pandas

    count = size // 16
    keys, values = make("keys", (count,), numpy.int64), make("values", (count,), float)
    began = time.perf_counter()
    for start, end in pieces(count):
        rows = numpy.arange(start, end, dtype=numpy.uint64)
        keys[start:end] = (rows * numpy.uint64(0x9E3779B97F4A7C15) >> numpy.uint64(40)) % numpy.uint64(GROUPS)
        values[start:end] = rows % numpy.uint64(251)
    filled = time.perf_counter() - began
    frame = pandas.DataFrame({"key": keys, "value": values}, copy=False)
    prices = pandas.DataFrame({"key": numpy.arange(GROUPS), "price": numpy.linspace(1, 2, GROUPS)})

    def work() -> list[float]:
        sums, joined, most = numpy.zeros(GROUPS), 0.0, 0.0
        for start, end in pieces(count, min(4 * PIECE, count // 64 + 1)):
            part = frame.iloc[start:end]
            sums += part.groupby("key")["value"].sum().reindex(range(GROUPS), fill_value=0).to_numpy()
            both = part.merge(prices, on="key")
            joined += float((both["value"] * both["price"]).sum())
            most = max(most, float(part["value"].max()))
        return [*sums[:5], sums.sum(), joined, most]

    return work, filled


def sklearn_workload(make: Make, size: int) -> tuple[Callable[[], list[float]], float]:
    """Clusters of points, learned in one pass in order and looked for in another."""
    from sklearn.cluster import MiniBatchKMeans

    rows = size // (8 * COLUMNS)
    points = make("points", (rows, COLUMNS), float)
    began = time.perf_counter()
    generator = numpy.random.default_rng(2)
    middles = generator.normal(scale=10, size=(CENTERS, COLUMNS))
    for start, end in pieces(rows, PIECE // 4):
        points[start:end] = generator.normal(size=(end - start, COLUMNS)) + middles[numpy.arange(start, end) % CENTERS]
    filled = time.perf_counter() - began

    def work() -> list[float]:
        model = MiniBatchKMeans(CENTERS, init=middles + 0.5, n_init=1, random_state=3)
        for start, end in pieces(rows, PIECE // 4):
            model.partial_fit(points[start:end])
        sizes = numpy.zeros(CENTERS)
        for start, end in pieces(rows, PIECE // 4):
            sizes += numpy.bincount(model.predict(points[start:end]), minlength=CENTERS)
        return [*model.cluster_centers_[:, 0], *sizes]

    return work, filled


WORKLOADS = {"numpy": numpy_workload, "pandas": pandas_workload, "scikit-learn": sklearn_workload}


def pieces(count: int, rows: int = PIECE) -> Iterator[tuple[int, int]]:
    for start in range(0, count, rows):
        yield start, min(start + rows, count)


@contextlib.contextmanager
def arrays(way: str, options: argparse.Namespace) -> Iterator[Make]:
    """How arrays are made the way that is asked for."""
    if way == "memmap":
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            yield lambda name, shape, dtype: numpy.memmap(Path(folder) / name, dtype, "w+", shape=shape)
    elif way == "far":
        import yonder

        with yonder.open(options.far, local=local_bytes(options), memory=3 * options.size + (64 << 20)) as memory:
            with yonder.memory(memory):
                yield lambda _, shape, dtype: yonder.empty(shape, dtype)
    else:
        yield lambda _, shape, dtype: numpy.empty(shape, dtype)


def child(options: argparse.Namespace) -> None:
    """Runs one workload, and prints what it took and found."""
    if options.workload == "pandas":
        import pandas  # noqa: F401
    elif options.workload == "scikit-learn":
        import sklearn.cluster  # noqa: F401
    if options.group:
        Path(options.group).write_text(str(os.getpid()))
    with arrays(options.way, options) as make:
        work, filled = WORKLOADS[options.workload](make, options.size)
        began = time.perf_counter()
        answers = work()
        took = time.perf_counter() - began
        print(json.dumps({"fill_s": filled, "work_s": took, "answers": [float(answer) for answer in answers]}))


def run(workload: str, way: str, options: argparse.Namespace, group: str = "") -> dict[str, Any]:
    """Runs one workload in a process of its own."""
    command = [sys.executable, __file__, "--child", "--workload", workload, "--way", way, "--group", group]
    command += ["--size", str(options.size), "--local", str(options.local), "--folder", options.folder]
    command += ["--far", options.far]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == -9:
        return {"failed": "out of memory: the kernel killed it"}
    if ended.returncode != 0:
        return {"failed": (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]}
    return dict(json.loads(ended.stdout))


def measure(workload: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """The medians of some runs, or why there are none."""
    runs = []
    for _ in range(options.runs):
        try:
            with contextlib.ExitStack() as stack:
                group = ""
                if way == "zram":
                    stack.enter_context(kernel_memory.swap_on_zram(4 * options.size))
                if way in ("memmap", "zram"):
                    group = str(stack.enter_context(kernel_memory.group(local_bytes(options))))
                runs.append(run(workload, way, options, group))
        except kernel_memory.Missing as missing:
            return {"workload": workload, "way": way, "skip": str(missing)}
        if "failed" in runs[-1]:
            return {"workload": workload, "way": way, **runs[-1]}
    medians = {name: statistics.median(run[name] for run in runs) for name in ("fill_s", "work_s")}
    return {"workload": workload, "way": way, **medians, "answers": runs[0]["answers"]}


def judge(result: dict[str, Any], right: list[float]) -> None:
    """Says whether the answers are right."""
    if "answers" in result:
        answers = result.pop("answers")
        is_right = len(answers) == len(right) and numpy.allclose(answers, right, rtol=TOLERANCE, atol=0)
        result["right"] = bool(is_right)


def line(result: dict[str, Any]) -> str:
    start = f"{result['workload']:<14} {result['way']:<8}"
    if "skip" in result:
        return f"{start} SKIP: {result['skip']}"
    if "failed" in result:
        return f"{start} FAILED: {result['failed']}"
    return f"{start} {result['fill_s']:>8.2f} {result['work_s']:>8.2f}   {'yes' if result['right'] else 'NO'}"


def local_bytes(options: argparse.Namespace) -> int:
    return int(options.size * options.local / 100)


def size_of(text: str) -> int:
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    return int(text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size_of, default="256MiB", help="bytes of data of each workload")
    parser.add_argument("--local", type=float, default=25, help="percent of them that are local, or in memory")
    parser.add_argument("--folder", default="/var/tmp", help="folder of the mapped files, and of far memory's")
    parser.add_argument("--far", default="", help="URL of far memory, such as tcp://127.0.0.1:7070")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="which, with commas between them")
    parser.add_argument("--ways", default="far,memmap,zram", help="which, with commas between them")
    parser.add_argument("--runs", type=int, default=1, help="how often each is run")
    parser.add_argument("--json", action="store_true", help="print one object for each row")
    for name in ("--workload", "--way", "--group"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.child:
        child(options)
        return 0
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        # What a child leaves that the kernel kills goes with the folder, too.
        options.folder = folder
        options.far = options.far or f"file://{folder}/far?size={4 * options.size + (256 << 20) >> 20}MiB"
        if not options.json:
            print(f"{options.size >> 20} MiB of data, {options.local:g} % local; far memory on {options.far}")
            print(f"{'workload':<14} {'way':<8} {'fill s':>8} {'work s':>8}   right", flush=True)
        failed = False
        for workload in options.workloads.split(","):
            right: list[float] = []
            for way in ("local", *options.ways.split(",")):
                result = measure(workload, way, options)
                right = result.get("answers", []) if way == "local" else right
                judge(result, right)
                # The kernel may have to kill what has no memory; a wrong answer is never right.
                failed |= not result.get("right", way in ("memmap", "zram"))
                print(json.dumps(result) if options.json else line(result), flush=True)
    return int(failed)


if __name__ == "__main__":
    # Ended from outside, too, it undoes what it has set up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
