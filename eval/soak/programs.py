"""The programs of the campaign: their inputs, sizes and tight budgets.

A program prints the same at each run of a size, with or without the pager. Sizes: full as in the comparison with
kernel swap, small for runs of seconds, tiny for less than one. The torture programs check themselves, and their
output depends on timing: only their exit code counts.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TORTURE = ROOT / "tests/torture"
SIZES = ("tiny", "small", "full")


class Missing(Exception):
    """This machine lacks something."""


def need(*names):
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise Missing(f"{' or '.join(names)} is not installed")


def compiled(target, words):
    if not target.exists():
        subprocess.run([*words, "-o", target], check=True)
    return target


class Program:
    """A program at a size. `ram_mib` is its tight budget; `count` is its size parameter."""

    name = ""
    ram_mib = {}
    count = {}
    env = {}
    # False: the program checks itself, and its output depends on timing.
    same_output = True
    # Exit codes with which a program reports an injected fault that it survived.
    codes_injected = ()
    # Large enough that no program fills the store (ENOMEM).
    flash_size = "4G"

    def __init__(self, folder, size, part=None):
        self.folder, self.size, self.part = folder, size, part

    def prepare(self):
        """Makes the input in `self.folder`, the same at each start. Raises Missing."""

    def command(self, seed):
        """The words of the command; it runs in an empty folder."""
        raise NotImplementedError

    def n(self):
        return self.count[self.size]


class Sqlite(Program):
    name = "sqlite"
    ram_mib = {"tiny": 6, "small": 14, "full": 96}
    count = {"tiny": 30_000, "small": 200_000, "full": 2_000_000}

    def prepare(self):
        need("sqlite3")

    def command(self, seed):
        n = self.n()
        return [need("sqlite3"), ":memory:", f"""
            pragma cache_size=-2000000;
            create table t(a integer primary key, b int, c text);
            with recursive n(i) as (select 1 union all select i+1 from n where i<{n})
                insert into t select i, (i*7919)%1000003, hex(i*31)||'abcdefghij' from n;
            create index x on t(b);
            select count(*), sum(b), min(c), max(c) from t;
            select b%10, count(*), sum(length(c)) from t where b between 1000 and 600000 group by 1;
            select sum(length(c)) from (select c from t indexed by x order by b limit {n * 3 // 20});
            update t set c = c||'x' where a%7 = 3;
            delete from t where b%11 = 5;
            select count(*), sum(b), sum(length(c)) from t;"""]


class Redis(Program):
    name = "redis"
    ram_mib = {"tiny": 8, "small": 16, "full": 64}
    count = {"tiny": 5_000, "small": 30_000, "full": 200_000}
    client, servers = "redis_client.py", ("redis-server",)

    def prepare(self):
        need(*self.servers)

    def command(self, seed):
        return [sys.executable, HERE / self.client, self.n()]


class Memcached(Redis):
    name = "memcached"
    ram_mib = {"tiny": 8, "small": 16, "full": 64}
    count = {"tiny": 5_000, "small": 40_000, "full": 250_000}
    client, servers = "memcached_client.py", ("memcached",)


class Dictionary(Program):
    name = "dictionary"
    ram_mib = {"tiny": 6, "small": 40, "full": 128}
    count = {"tiny": 30_000, "small": 300_000, "full": 2_000_000}
    env = {"PYTHONHASHSEED": "0"}

    def command(self, seed):
        return [sys.executable, ROOT / "eval/programs/dictionary.py", self.n()]


class Map(Program):
    name = "node"
    ram_mib = {"tiny": 16, "small": 32, "full": 96}
    count = {"tiny": 10_000, "small": 200_000, "full": 1_000_000}

    def prepare(self):
        need("node")

    def command(self, seed):
        return [need("node"), "--max-old-space-size=2000", HERE / "map.js", self.n()]


class Gcc(Program):
    name = "gcc"
    ram_mib = {"tiny": 6, "small": 16, "full": 48}
    count = {"tiny": 15, "small": 150, "full": 1500}

    def prepare(self):
        need("gcc")
        with open(self.folder / "functions.c", "w") as file:
            file.write("int table[99999];\n")
            for i in range(self.n()):
                file.write(
                    f"int f{i}(int x, int y) {{ int s = {i}; for (int i = 0; i < x; i++) {{"
                    f" s += table[(i * {i % 97 + 1} + y) % 99999] * {i % 13 + 1};"
                    f" if (s & {1 << i % 9}) s ^= x * {i}; else s -= y / {i % 7 + 1}; }}"
                    f" switch (s % 5) {{ case 0: return s + {i}; case 1: return s * x; case 2: return y - s;"
                    f" default: return f{max(i - 1, 0)}(s, x); }} }}\n")

    def command(self, seed):
        return [need("gcc"), "-O2", "-x", "c", "-S", "-o", "-", self.folder / "functions.c"]


class Sort(Program):
    name = "sort"
    ram_mib = {"tiny": 6, "small": 16, "full": 128}
    count = {"tiny": 100_000, "small": 300_000, "full": 3_500_000}
    env = {"LC_ALL": "C"}

    def prepare(self):
        need("sort")
        draw = random.Random(3)
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = ["".join(draw.choices(letters, k=draw.randint(2, 11))) for _ in range(60_000)]
        with open(self.folder / "words", "w") as file:
            for _ in range(self.n()):
                one, two, three = draw.choices(words, k=3)
                file.write(f"{one} {two} {draw.randrange(10**9)} {three}\n")

    def command(self, seed):
        return [need("sort"), "--buffer-size=2G", "--parallel=2", self.folder / "words"]


class Bfs(Program):
    name = "bfs"
    ram_mib = {"tiny": 6, "small": 12, "full": 64}
    count = {"tiny": 16, "small": 17, "full": 20}

    def prepare(self):
        compiled(self.folder / "bfs", [need("cc", "gcc"), "-O2", "-w", HERE / "bfs.c"])

    def command(self, seed):
        return [self.folder / "bfs", self.n()]


class Torture(Program):
    """tests/torture, a part at a time: torture:PART."""

    name = "torture"
    ram_mib = {"tiny": 8, "small": 16, "full": 32}
    count = {"tiny": (16, 0.2), "small": (64, 1), "full": (192, 5)}  # MiB, seconds
    same_output = False
    sources = "torture rewrite fork syscalls table table_ways remap protect guard signals alloc exit".split()

    def prepare(self):
        self.binary = compiled(self.folder.parent / "torture", [
            need("cc", "gcc"), "-O2", "-g", "-pthread", *(TORTURE / f"{name}.c" for name in self.sources)])

    def parts(self):
        listed = subprocess.run([self.binary, "--list"], check=True, stdout=subprocess.PIPE, text=True)
        return listed.stdout.split()

    def command(self, seed):
        mib, seconds = self.n()
        only = ["--only", self.part] if self.part else []
        return [self.binary, "--mib", mib, "--seconds", seconds, "--threads", 1 + seed % 6, "--seed", seed, *only]


class Cxx(Program):
    name = "torture_cxx"
    ram_mib = {"tiny": 6, "small": 16, "full": 32}
    count = {"tiny": 8, "small": 40, "full": 128}
    same_output = False

    def prepare(self):
        self.binary = compiled(self.folder.parent / "torture_cxx", [
            need("c++", "g++"), "-O2", "-g", "-pthread", TORTURE / "torture_cxx.cc"])

    def command(self, seed):
        return [self.binary, self.n(), seed]


class Sigbus(Program):
    """Pages through a store that fails. Exit code 3: a page of the heap was lost, as expected."""

    name = "sigbus"
    ram_mib = {"tiny": 6, "small": 16, "full": 32}
    count = {"tiny": 16, "small": 64, "full": 192}
    same_output = False
    codes_injected = (3,)

    def prepare(self):
        self.binary = compiled(self.folder.parent / "sigbus", [
            need("cc", "gcc"), "-O2", "-g", TORTURE / "sigbus.c"])

    def command(self, seed):
        return [self.binary, self.n(), 3]


class Small(Program):
    """Small objects, freed by other threads, in forks and in signal handlers."""

    name = "small"
    ram_mib = {"tiny": 8, "small": 16, "full": 32}
    count = {"tiny": (12, 0.3), "small": (48, 2), "full": (128, 8)}
    same_output = False

    def prepare(self):
        self.binary = compiled(self.folder.parent / "small", [
            need("cc", "gcc"), "-O2", "-g", "-pthread", TORTURE / "small.c"])

    def command(self, seed):
        mib, seconds = self.n()
        return [self.binary, "churn", mib, seconds, seed]


class Full(Program):
    """Allocates until the store is full."""

    name = "enomem"
    ram_mib = {"tiny": 6, "small": 12, "full": 48}
    count = {"tiny": 400, "small": 600, "full": 2000}
    same_output = False

    def prepare(self):
        self.binary = compiled(self.folder.parent / "enomem", [
            need("cc", "gcc"), "-O2", "-g", TORTURE / "enomem.c"])
        self.flash_size = {"tiny": "32M", "small": "96M", "full": "384M"}[self.size]

    def command(self, seed):
        return [self.binary, "mmap" if seed % 2 else "malloc", self.n()]


ALL = {kind.name: kind for kind in (
    Sqlite, Redis, Memcached, Dictionary, Map, Gcc, Sort, Bfs, Torture, Cxx, Sigbus, Small, Full)}


class Shelf:
    """Prepared programs, and what each prints without the pager."""

    def __init__(self, folder):
        self.folder, self.lock, self.ready, self.bare = folder, threading.Lock(), {}, {}

    def program(self, name, size):
        """The program NAME or NAME:PART at a size. Raises Missing."""
        base, _, part = name.partition(":")
        with self.lock:
            if (name, size) not in self.ready:
                folder = self.folder / f"{base}-{size}"
                folder.mkdir(exist_ok=True)
                program = ALL[base](folder, size, part or None)
                try:
                    program.prepare()
                except Missing as reason:
                    program = reason
                self.ready[name, size] = program
        if isinstance(self.ready[name, size], Missing):
            raise self.ready[name, size]
        return self.ready[name, size]

    def expected(self, program, run):
        """The result of the first `run(program)`: there is one bare run for each program and size."""
        key = (program.name, program.size)
        with self.lock:
            if key not in self.bare:
                self.bare[key] = run(program)
        return self.bare[key]


def environment(program, temporary):
    """The environment of a run; its temporary folder is kept for inspection."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "FLASHVM"))}
    return {**kept, **program.env, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}

