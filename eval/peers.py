"""The kernel's ways to page, as peers: a memory cgroup, a swap file, zswap and zram. All need root.

Each is removed when it is closed, or at the end of the process.
"""

import atexit
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

MIB = 1 << 20


class Refused(Exception):
    """This machine does not support a peer."""


class Cgroup:
    """A memory cgroup, v1 or v2, removed at exit."""

    def __init__(self, name):
        v1 = Path("/sys/fs/cgroup/memory")
        v2 = Path("/sys/fs/cgroup")
        if (v1 / "memory.limit_in_bytes").exists():
            self.version, base = 1, v1
        elif "memory" in (v2 / "cgroup.controllers").read_text().split():
            self.version, base = 2, v2
            (base / "cgroup.subtree_control").write_text("+memory")
        else:
            raise Refused("no memory controller under /sys/fs/cgroup; mount one")
        self.path = base / f"{name}-{os.getpid()}"
        self.path.mkdir()
        self.end_sparing = lambda: 0
        atexit.register(self.remove)

    def limit(self, limit_bytes):
        """Sets the limit. Raises OSError if more is in use, and the kernel could not evict it."""
        self.limit_bytes = limit_bytes
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        (self.path / name).write_text(str(limit_bytes))

    def used_bytes(self):
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return int((self.path / name).read_text())

    def spare(self):
        """From now on the OOM killer (version 1) spares programs. It ends them although swap is free, when 16 reclaims in
        a row have freed nothing, as all pages are still being written. Instead they wait, until 1 MiB more than
        the limit lets them go on. `end_sparing` ends this, and returns how often they waited."""
        if self.version != 1:
            return
        control, limit = self.path / "memory.oom_control", self.path / "memory.limit_in_bytes"
        control.write_text("1")
        done, waits = threading.Event(), [0]

        def watch():
            while not done.wait(0.005):
                if "under_oom 1" not in control.read_text():
                    continue
                waits[0] += 1
                for size in (self.limit_bytes + MIB, self.limit_bytes):
                    try:
                        limit.write_text(str(size))
                    except OSError:
                        pass  # too much is in use: the limit is lowered at the next wait
                    time.sleep(0.002)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()

        def end():
            done.set()
            watcher.join()
            return waits[0]

        self.end_sparing = end

    def reset_peak(self):
        try:
            if self.version == 1:
                (self.path / "memory.max_usage_in_bytes").write_text("0")
                (self.path / "memory.force_empty").write_text("0")
            else:
                (self.path / "memory.peak").write_text("0")
        except OSError:
            pass  # an older v2 kernel cannot reset the peak, which then covers all runs

    def peak_mib(self):
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        try:
            return int((self.path / name).read_text()) / MIB
        except OSError:
            return None

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        self.end_sparing()
        for _ in range(50):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)
        print(f"could not remove {self.path}", file=sys.stderr)


class Balance(threading.Thread):
    """Holds what a cgroup uses and a pool outside of it (a `Zswap` or `Zram`) to one budget: every 10 ms
    limit = budget - pool. The pool gets no more pages once it has `peer.MOST` of the budget."""

    # Of the budget.
    LEAST_LIMIT, OVER = 1 / 8, 1.05

    def __init__(self, cgroup, peer, budget_bytes):
        super().__init__(daemon=True)
        self.cgroup, self.peer, self.budget = cgroup, peer, budget_bytes
        self.pool_most, self.looks, self.over, self.done = 0, 0, 0, threading.Event()

    def run(self):
        applied = self.budget
        while not self.done.wait(0.01):
            pool = self.peer.pool_bytes()
            self.pool_most = max(self.pool_most, pool)
            self.looks += 1
            self.over += self.cgroup.used_bytes() + pool > self.OVER * self.budget
            self.peer.accept(pool < self.peer.MOST * self.budget)
            limit = max(self.budget - pool, int(self.budget * self.LEAST_LIMIT)) // MIB * MIB
            if limit != applied:
                try:
                    self.cgroup.limit(limit)
                    applied = limit
                except OSError:
                    pass  # too much is in use: the next look tries again

    def stop(self):
        """Ends it. Returns the share of the time in which cgroup and pool together took more than `OVER` budgets."""
        self.done.set()
        self.join()
        return self.over / max(self.looks, 1)


class SwapFile:
    """A swap file with the highest priority, removed at exit."""

    def __init__(self, folder, mib):
        self.path = Path(folder) / f"flashvm-peer-{os.getpid()}.swap"
        self.active = False
        atexit.register(self.remove)
        with open(self.path, "wb", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            os.posix_fallocate(file.fileno(), 0, mib * MIB)
        subprocess.run(["mkswap", self.path], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["swapon", "--priority", "32767", self.path], check=True)
        self.active = True

    def remove(self):
        if self.active:
            subprocess.run(["swapoff", self.path], check=False)
            self.active = False
        self.path.unlink(missing_ok=True)


class Zswap:
    """Compressed memory in front of a swap file, in at most `MOST` of the budget (`Balance`). Without readahead: with
    it, the kernel decompresses 8 pages for each fault."""

    MOST = 0.5
    # A version 2 cgroup counts the pool itself.
    COUNTED = True
    PARAMETERS, READAHEAD = Path("/sys/module/zswap/parameters"), Path("/proc/sys/vm/page-cluster")

    def __init__(self, folder, mib):
        if not self.PARAMETERS.exists():
            raise Refused("this kernel has no zswap")
        wanted = {self.PARAMETERS / "max_pool_percent": "90", self.PARAMETERS / "shrinker_enabled": "Y", self.READAHEAD: "0",
                  self.PARAMETERS / "enabled": "Y"}
        wanted = {path: value for path, value in wanted.items() if path.exists()}
        self.before = {path: path.read_text().strip() for path in wanted}
        atexit.register(self.restore)
        for path, value in wanted.items():
            path.write_text(value)
        self.file, self.accepts = SwapFile(folder, mib), True

    def accept(self, more):
        """Whether the pool gets more pages; the others go to the swap file."""
        if more != self.accepts:
            self.accepts = more
            (self.PARAMETERS / "enabled").write_text("Y" if more else "N")

    def restore(self):
        for path, value in reversed(self.before.items()):
            path.write_text(value)

    def remove(self):
        self.file.remove()
        self.restore()

    def pool_bytes(self):
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("Zswap:"))


class Zram:
    """A compressed block device in RAM as swap: it has to hold all that does not fit."""

    MOST = 1
    COUNTED = False
    DEVICE, SYS = Path("/dev/zram0"), Path("/sys/block/zram0")

    def __init__(self, folder, mib):
        if not self.SYS.exists():
            try:
                Path("/sys/class/zram-control/hot_add").read_text()
            except OSError:
                raise Refused("this kernel has no zram") from None
        if not self.DEVICE.exists():
            major, minor = map(int, (self.SYS / "dev").read_text().split(":"))
            os.mknod(self.DEVICE, 0o600 | stat.S_IFBLK, os.makedev(major, minor))
        self.active = False
        (self.SYS / "disksize").write_text(f"{mib}M")
        atexit.register(self.remove)
        self.active = True
        subprocess.run(["mkswap", self.DEVICE], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["swapon", "--priority", "32767", self.DEVICE], check=True)

    def remove(self):
        if self.active:
            subprocess.run(["swapoff", self.DEVICE], check=False, stderr=subprocess.DEVNULL)
            (self.SYS / "reset").write_text("1")
            self.active = False

    def accept(self, more):
        """It has no other place for pages."""

    def pool_bytes(self):
        return int((self.SYS / "mm_stat").read_text().split()[2])
