"""The processes of a run, and the managed memory that they have in RAM, as the kernel counts it.

A run is a session of its own, and its processes carry a mark in their environment: both outlast a parent's end. The
managed range is 512 GiB, followed by its shadow of the same size; each of its parts that is registered with
userfaultfd has the flag um or uw in smaps. Without a shadow (--no-move) these flags alone tell. What the pager
maps there is anonymous and not reserved (flag nr): other memory at these addresses is the program's or the
kernel's. Frames of small pages lie in a memfd, whose blocks count once. Pss shares a page among the processes
that map it: the sum over the tree counts a page once that a fork has shared.
"""

import ctypes
import os
import re
import signal
import threading
import time
from pathlib import Path

RANGE_BYTES = 512 << 30
# Upper bound on samples' share of a run's time; the time of one grows with the number of mappings.
TIME_SHARE = 0.05
INTERVAL_S_MIN = 0.05
HEADER = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+)")
# Seconds to wait until all are frozen: a thread that waits for the disk freezes only after its answer.
FREEZE_S_MAX = 2
KCMP, KCMP_VM = 312, 1
LIBC = ctypes.CDLL(None, use_errno=True)
FRAMES = "/memfd:flashvm-frames"


def states():
    """The state, parent and session of every process."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    words = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            yield int(name), words[0].decode(), int(words[1]), int(words[3])


def of_session(session):
    """The processes of a session, without zombies."""
    return [pid for pid, state, _, other in states() if other == session and state not in "ZX"]


def marked(mark):
    """The processes with `mark` in their environment, in any session."""
    found = []
    for pid, state, _, _ in states():
        if state in "ZX" or pid == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def children(pid):
    return [child for child, state, parent, _ in states() if parent == pid and state not in "ZX"]


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def managed_bytes(pid):
    """The resident managed memory of a process."""
    with open(f"/proc/{pid}/smaps", "rb") as file:
        text = file.read()
    areas, low, high = [], 0, 0
    start = end = pss = inode = 0
    for line in text.splitlines():
        if line.startswith(b"Pss:"):
            pss = int(line.split()[1]) << 10
        elif line.startswith(b"VmFlags:"):
            registered = b" um" in line or b" uw" in line
            if registered and end - start == RANGE_BYTES:
                low, high = start - RANGE_BYTES, end
            if pss and not inode and b" nr" in line:
                areas.append((start, pss, registered))
        elif found := HEADER.match(line):
            start, end, inode, pss = int(found[1], 16), int(found[2], 16), int(found[3]), 0
    return sum(pss for start, pss, registered in areas if registered or low <= start < high)


def has_memory(pid):
    """Whether a process has an address space. An ending process gives it up before its frames are free."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[0]) > 0
    except (OSError, ValueError):
        return False


def share_memory(one, other):
    """Whether two processes have the same address space, as after vfork."""
    return LIBC.syscall(KCMP, one, other, KCMP_VM, 0, 0) == 0


def frames(pid):
    """The memfds of a process that hold frames of small pages: identity and bytes."""
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        if os.readlink(path).startswith(FRAMES):
            found = os.stat(path)
            yield (found.st_dev, found.st_ino), found.st_blocks * 512


class Freezer:
    """A group of processes that can be stopped all at once: a cgroup of the freezer, version 1."""

    ROOT = Path("/sys/fs/cgroup/freezer")

    def __init__(self, name):
        self.folder = self.ROOT / name
        self.folder.mkdir()

    @classmethod
    def missing(cls):
        """Why this machine has no freezer; None if it has one."""
        if not (cls.ROOT / "cgroup.procs").exists():
            return f"{cls.ROOT} does not exist: mount the freezer of cgroup version 1"
        return None if os.access(cls.ROOT, os.W_OK) else f"{cls.ROOT} cannot be written: run it as root"

    def command(self, words):
        """A command that joins the group and becomes `words`."""
        return ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.folder / "cgroup.procs"), *words]

    def freeze(self):
        """Freezes all processes; returns whether that succeeded in time. In either case `thaw` must follow."""
        state = self.folder / "freezer.state"
        state.write_text("FROZEN")
        end = time.monotonic() + FREEZE_S_MAX
        while state.read_text().strip() != "FROZEN":
            if time.monotonic() > end:
                return False
            time.sleep(0.0005)
        return True

    def thaw(self):
        (self.folder / "freezer.state").write_text("THAWED")

    def pids(self):
        return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]

    def close(self):
        """Removes the group, which has no processes, or zombies for a moment."""
        self.thaw()
        for _ in range(200):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.05)
        return self.folder.rmdir()


class Sampler(threading.Thread):
    """Samples the resident managed memory of a run and keeps the maximum.

    All processes of the run are frozen during a sample, so it is exact. An ending process does not freeze: such a
    sample is dropped, and counts as `unfrozen`.
    """

    def __init__(self, freezer, small_pages, budget_bytes):
        super().__init__(daemon=True)
        self.freezer, self.small_pages, self.budget_bytes = freezer, small_pages, budget_bytes
        self.bytes_max = self.samples = self.above = self.unfrozen = 0
        self.done = threading.Event()

    def run(self):
        pause = INTERVAL_S_MIN
        while not self.done.wait(pause):
            start = time.monotonic()
            try:
                frozen = self.freezer.freeze()
                total = self.sample() if frozen else None
            finally:
                self.freezer.thaw()
            pause = max(INTERVAL_S_MIN, (time.monotonic() - start) / TIME_SHARE)
            if total is None:
                self.unfrozen += 1
                continue
            self.samples += 1
            self.bytes_max = max(self.bytes_max, total)
            self.above += total > self.budget_bytes

    def sample(self):
        """Bytes of all processes. None: a process ended meanwhile, so its shared pages may have counted twice."""
        total, files, seen = 0, {}, []
        for pid in self.freezer.pids():
            if any(share_memory(pid, other) for other in seen):
                continue
            try:
                if has_memory(pid):
                    total += managed_bytes(pid)
                    seen.append(pid)
                if self.small_pages:
                    files.update(frames(pid))
            except (OSError, ValueError):
                pass  # a zombie
        return total + sum(files.values()) if all(map(has_memory, seen)) else None

    def stop(self):
        self.done.set()
        self.join()
