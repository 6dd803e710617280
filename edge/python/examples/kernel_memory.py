"""The kernel's own ways to have more memory than there is, for `workloads.py`: control groups and swap on zram.

Both need root. What was set up here is undone at the end of `with`; groups and swap that were there are left alone.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

REMOVE_SECONDS_MAX = 10
DEVICE_BYTES_MIN = 64 << 20


class Missing(Exception):
    """What this machine lacks, and how it is mended."""


@contextlib.contextmanager
def group(limit_bytes: int) -> Iterator[Path]:
    """A control group whose processes have so many bytes of memory together. Whoever writes its number to the file that
    is yielded enters it; what it has allocated before is not counted."""
    parent, limit_file = _parent()
    folder = parent / f"yonder-workloads-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit_file).write_text(str(limit_bytes))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise Missing(f"no control group can be made in {parent}: {error.strerror}: run this as root") from error
    try:
        yield folder / "cgroup.procs"
    finally:
        _remove(folder)


@contextlib.contextmanager
def swap_on_zram(size_bytes: int) -> Iterator[str]:
    """Swap on compressed memory, before any other there is. Yields what it is called."""
    swaps = [line.split() for line in Path("/proc/swaps").read_text().splitlines()[1:]]
    first = max(swaps, key=lambda swap: int(swap[-1]), default=None)
    if first is not None:
        if not first[0].startswith("/dev/zram"):
            raise Missing(f"swap on {first[0]} would be measured: type swapoff {first[0]} as root")
        yield _described(Path("/sys/block") / Path(first[0]).name)
        return
    if os.geteuid() != 0:
        raise Missing("there is no swap on zram, and only root makes some: run this as root")
    folder = _unused_device()
    device = Path("/dev") / folder.name
    try:
        (folder / "disksize").write_text(str(max(size_bytes, DEVICE_BYTES_MIN)))
        _call("mkswap", str(device))
        _call("swapon", "--priority", "32767", str(device))
        yield _described(folder)
    finally:
        with contextlib.suppress(Missing):
            _call("swapoff", str(device))
        (folder / "reset").write_text("1")


def _parent() -> tuple[Path, str]:
    """The group to make others in, and its file for the limit: of version 1 or 2, whichever limits memory."""
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup" and "memory" in options.split(","):
            inside = next(path for _, names, path in own if "memory" in names.split(","))
            return _folder(root, point, inside), "memory.limit_in_bytes"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        if after.split()[0] == "cgroup2":
            inside = next(path for _, names, path in own if not names)
            start = _folder(root, point, inside)
            for folder in (start, *start.parents):
                control = folder / "cgroup.subtree_control"
                if control.exists() and "memory" in control.read_text().split():
                    return folder, "memory.max"
    raise Missing("no control group limits memory: type echo +memory > /sys/fs/cgroup/cgroup.subtree_control as root")


def _folder(root: str, point: str, inside: str) -> Path:
    folder = Path(point) / os.path.relpath(inside, root)
    return folder if folder.exists() else Path(point)


def _remove(folder: Path) -> None:
    # The kernel takes a moment to let go of processes that have ended.
    until = time.monotonic() + REMOVE_SECONDS_MAX
    while True:
        try:
            folder.rmdir()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def _unused_device() -> Path:
    mend = "type modprobe zram as root"
    for folder in sorted(Path("/sys/block").glob("zram*")):
        if (folder / "disksize").read_text().strip() == "0" and (Path("/dev") / folder.name).exists():
            return folder
    add = Path("/sys/class/zram-control/hot_add")
    if not add.exists():
        raise Missing(f"the kernel has no zram: {mend}")
    folder = Path("/sys/block") / f"zram{add.read_text().strip()}"
    if not (Path("/dev") / folder.name).exists():
        raise Missing(f"there is no /dev/{folder.name}: {mend}")
    return folder


def _described(folder: Path) -> str:
    words = (folder / "comp_algorithm").read_text()
    return f"zram {words.partition('[')[2].partition(']')[0]}"


def _call(*command: str) -> None:
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Missing(f"there is no {command[0]}: type apt-get install util-linux mount as root") from error
    if ended.returncode != 0:
        raise Missing(f"{command[0]}: {ended.stderr.strip()}")
