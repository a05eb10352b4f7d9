"""The processes of a run, and the managed memory that they have in RAM, as the kernel counts it.

A run is a session of its own, and its processes carry a mark in their environment: both outlive parents. The
managed range is 512 GiB, followed by its shadow of the same size; each of its parts that is registered with
userfaultfd has the flag um or uw in smaps. Without a shadow (--no-move) these flags alone tell. Frames of small
pages lie in a memfd, whose blocks count once. Pss shares a page among the processes that map it: the sum over
the tree counts a page once that a fork has shared.
"""

import os
import re
import signal
import threading
import time

RANGE_BYTES = 512 << 30
# Upper bound on the share of time; the time of one reading depends on the number of mappings.
TIME_SHARE = 0.05
INTERVAL_S_MIN = 0.05
HEADER = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ")
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
    """The resident managed memory of a process: outside of the shadow, and in it."""
    with open(f"/proc/{pid}/smaps", "rb") as file:
        text = file.read()
    areas, shadow = [], None
    start = end = pss = 0
    for line in text.splitlines():
        if line.startswith(b"Pss:"):
            pss = int(line.split()[1]) << 10
        elif line.startswith(b"VmFlags:"):
            registered = b" um" in line or b" uw" in line
            if registered and end - start == RANGE_BYTES:
                shadow = start
            if pss:
                areas.append((start, end, pss, registered))
        elif found := HEADER.match(line):
            start, end, pss = int(found[1], 16), int(found[2], 16), 0
    low, high = (shadow - RANGE_BYTES, shadow + RANGE_BYTES) if shadow else (0, 0)
    managed = [(start, pss) for start, end, pss, registered in areas if registered or low <= start < high]
    moved = sum(pss for start, pss in managed if start == shadow)
    return sum(pss for _, pss in managed) - moved, moved


def frames(pid):
    """The memfds of a process that hold frames of small pages: identity and bytes."""
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        if os.readlink(path).startswith(FRAMES):
            found = os.stat(path)
            yield (found.st_dev, found.st_ino), found.st_blocks * 512


class Sampler(threading.Thread):
    """Samples the resident managed memory of a session; keeps the maximum.

    The processes run on while they are read, and pages move to the shadow and back meanwhile: the shadow, read
    after the rest, may hold pages that have been counted there. A sample above the budget is therefore read again:
    the shadow belongs to the rest before it or to the rest after it, whichever is less. A fork or an exit between
    two processes still makes a single sample wrong; a budget that does not hold is seen again and again.
    """

    def __init__(self, session, small_pages, budget_bytes):
        super().__init__(daemon=True)
        self.session, self.small_pages, self.budget_bytes = session, small_pages, budget_bytes
        self.bytes_max = self.samples = self.above = 0
        self.done = threading.Event()

    def run(self):
        pause = INTERVAL_S_MIN
        while not self.done.wait(pause):
            start = time.thread_time()
            began = time.monotonic()
            rest, shadow = self.sample()
            total = rest + shadow
            if total > self.budget_bytes:
                total = min(rest, self.sample()[0]) + shadow
            self.samples += 1
            self.bytes_max = max(self.bytes_max, total)
            self.above += total > self.budget_bytes
            spent = max(time.thread_time() - start, (time.monotonic() - began) / 4)
            pause = max(INTERVAL_S_MIN, spent / TIME_SHARE)

    def sample(self):
        """Bytes outside of the shadows, and in them."""
        rest, shadows, files = 0, 0, {}
        for pid in of_session(self.session):
            try:
                here, moved = managed_bytes(pid)
                rest, shadows = rest + here, shadows + moved
                if self.small_pages:
                    files.update(frames(pid))
            except (OSError, ValueError):
                pass  # it has ended
        return rest + sum(files.values()), shadows

    def stop(self):
        self.done.set()
        self.join()
