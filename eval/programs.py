#!/usr/bin/env python3
"""Real programs without and with flashvm: whether the output is the same, and the cost.

usage: eval/programs.py [--short] [--only NAME] [--write docs/programs.md]

Each program runs without a budget, under `flashvm run --ram BUDGET` in each given fault mode, and (except with
--short) without a budget again. Its output must be the same byte for byte, except lines with the run time of spin's
pan. Figures come from the clock, from wait4 and from --stats. Exits with 1 if an output differs or a program fails;
programs that are not installed are named as SKIPPED. Standard library only.
"""

import argparse
import filecmp
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import imagemagick

ROOT = Path(__file__).resolve().parent.parent
HELPERS = ROOT / "eval/programs"

class Missing(Exception):
    """This machine lacks the program."""


def need(*names):
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise Missing(f"{' or '.join(names)} is not installed")


class Program:
    """One program: its description, budget, command, and the relevant part of its output."""

    needs_guard = False

    env = {}

    def __init__(self, folder, short):
        self.folder, self.short = folder, short

    def prepare(self):
        """Generates the input. Raises Missing."""

    def command(self, out):
        """The words of the command; its output files go into the folder `out`."""
        raise NotImplementedError

    def normal(self, text):
        return text

    def run(self, prefix, out):
        """Returns exit code, standard output, seconds and peak RSS in KiB."""
        printed = out / "printed"
        start = time.monotonic()
        with open(printed, "wb") as stdout:
            child = subprocess.Popen(
                prefix + [str(word) for word in self.command(out)],
                stdout=stdout,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.env},
            )
            with child.stderr as errors:
                said = errors.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        text = self.normal(printed.read_text())
        printed.write_text(text)
        if child.returncode != 0:
            print(f"--- standard error:\n{said.decode(errors='replace')}", file=sys.stderr)
        return child.returncode, seconds, usage.ru_maxrss


class Sort(Program):
    """GNU sort, buffer above the budget"""

    name, budget = "sort", ("64M", "16M")

    def prepare(self):
        lines = 600_000 if self.short else 8_000_000
        with open(self.folder / "words", "w") as file:
            for i in range(lines):
                file.write("%010d line %d of many\n" % (i * 48271 % 2147483647, i))
        self.what = f"{lines:,} lines, `--buffer-size=2G --parallel=2`"

    def command(self, out):
        return [need("sort"), "--buffer-size=2G", "--parallel=2", "-o", out / "sorted", self.folder / "words"]

    env = {"LC_ALL": "C"}


class Picture(Program):
    """ImageMagick, resize by 500 %"""

    name, budget = "convert", ("256M", "32M")

    def prepare(self):
        self.convert = imagemagick.convert()
        if not self.convert:
            raise Missing("ImageMagick's convert is not in /usr/bin")
        self.env = imagemagick.environment(self.folder)
        size = "480x360" if self.short else "1600x1200"
        imagemagick.picture(self.convert, size, self.folder / "in.ppm", self.env)
        self.what = f"{size}, `-resize 500%`"

    def command(self, out):
        return [self.convert, "-limit", "memory", "32GiB", "-limit", "map", "32GiB", "-limit", "area", "32GP",
                self.folder / "in.ppm", "-resize", "500%", out / "large.ppm"]


class Spin(Program):
    """spin's pan, Peterson's filter lock"""

    name, budget = "pan", ("256M", "24M")

    def prepare(self):
        spin, cc = need("spin"), need("cc", "gcc")
        users, rounds, self.hash_bits = (4, 1, 19) if self.short else (3, 8, 22)
        shutil.copy(ROOT / "eval/models/filter.pml", self.folder)
        subprocess.run(
            [spin, f"-DN={users}", f"-DROUNDS={rounds}", "-a", "filter.pml"],
            cwd=self.folder, check=True, stdout=subprocess.DEVNULL,
        )
        subprocess.run([cc, "-O2", "-w", "-DSAFETY", "-DMEMLIM=16000", "-o", "pan", "pan.c"], cwd=self.folder, check=True)
        self.what = f"{users} processes, {rounds} rounds"

    def command(self, out):
        return ["env", "-C", out, self.folder / "pan", "-m100000", f"-w{self.hash_bits}"]

    def normal(self, text):
        found = re.search(r"(\d+) states, stored", text)
        if found:
            self.what = re.sub(r", [\d,]+ states|$", f", {int(found[1]):,} states", self.what, count=1)
        return "".join(l for l in text.splitlines(True) if not re.match(r"pan: (elapsed|rate)|Depth=", l))


class Memcached(Program):
    """memcached, filled to four times the budget and read back"""

    name, budget = "memcached", ("48M", "16M")

    def prepare(self):
        self.server = need("memcached")
        self.value_bytes = 1000
        budget_mib = int(self.budget[self.short][:-1])
        self.items = 4 * budget_mib * 1024 * 1024 // self.value_bytes
        self.what = f"{self.items:,} items of {self.value_bytes} bytes, read back 1.25 times"

    def command(self, out):
        # Its 1024 connections would be above a container's limit on open files.
        return [self.server, "-u", "root", "-m", "4096", "-M", "-t", "2", "-c", "64", "-s", out / "socket"]

    def run(self, prefix, out):
        start = time.monotonic()
        server = subprocess.Popen(
            prefix + [str(word) for word in self.command(out)],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )
        client = subprocess.run(
            [sys.executable, HELPERS / "memcached_client.py", out / "socket", str(self.items), str(self.value_bytes)],
            stdout=subprocess.PIPE, text=True, check=False,
        )
        seconds = time.monotonic() - start
        # Not by Popen: it would reap a server that has ended already.
        os.kill(server.pid, signal.SIGTERM)
        _, status, usage = os.wait4(server.pid, 0)
        server.returncode = os.waitstatus_to_exitcode(status)
        (out / "socket").unlink(missing_ok=True)
        (out / "printed").write_text(client.stdout)
        return client.returncode or server.returncode, seconds, usage.ru_maxrss


class Java(Program):
    """Java, heap larger than the budget"""

    name, budget = "java", ("192M", "64M")

    def prepare(self):
        need("java")
        subprocess.run([need("javac"), "-d", self.folder, HELPERS / "Heap.java"], check=True)
        self.entries, self.heap = (300_000, "160m") if self.short else (1_200_000, "512m")
        self.what = f"`-Xmx{self.heap}`, {self.entries:,} entries"

    def command(self, out):
        return [need("java"), f"-Xmx{self.heap}", "-XX:-UsePerfData", "-cp", self.folder, "Heap", self.entries]


class Go(Program):
    """Go, statically linked, a map of strings"""

    name, budget = "go", ("128M", "16M")
    # The preloaded object cannot get into it.
    needs_guard = True

    def prepare(self):
        go = need("go")
        entries = 400_000 if self.short else 3_000_000
        self.arguments = [self.folder / "table", entries]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOCACHE": str(self.folder / "cache")}
        command = [go, "build", "-o", self.folder / "table", ROOT / "tests/carried/table.go"]
        subprocess.run(command, check=True, env=environment)
        self.what = f"{entries:,} entries"

    def command(self, out):
        return self.arguments


class Dictionary(Program):
    """CPython, a dictionary of millions of entries"""

    name, budget = "python", ("128M", "24M")

    def prepare(self):
        self.python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
        self.entries = 300_000 if self.short else 2_000_000
        self.what = f"{self.entries:,} entries"

    env = {"PYTHONHASHSEED": "0"}

    def command(self, out):
        return [self.python, HELPERS / "dictionary.py", self.entries]


class Sqlite(Program):
    """sqlite3, a table in memory and its index"""

    name, budget = "sqlite", ("64M", "16M")

    def prepare(self):
        self.sqlite = need("sqlite3")
        self.rows = 300_000 if self.short else 2_000_000
        self.what = f"{self.rows:,} rows"

    def command(self, out):
        return [self.sqlite, ":memory:", f"""
            CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, price INTEGER);
            WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {self.rows})
            INSERT INTO item SELECT i, hex(i * 48271 % 2147483647) || ' of many', i * 7919 % 10007 FROM n;
            CREATE INDEX by_name ON item(name);
            SELECT count(*), sum(price), min(name), max(name) FROM item;
            SELECT id, name, price FROM item INDEXED BY by_name WHERE id % {self.rows // 100} = 7 ORDER BY name;
            DELETE FROM item WHERE id % 3 = 0;
            SELECT count(*), sum(price), sum(length(name)) FROM item;
            PRAGMA integrity_check;"""]


PROGRAMS = [Sort, Picture, Spin, Memcached, Java, Go, Dictionary, Sqlite]


def same(one, other):
    """Names of the files that differ between two folders."""
    names = sorted(set(os.listdir(one)) | set(os.listdir(other)))
    return [n for n in names
            if not ((one / n).exists() and (other / n).exists() and filecmp.cmp(one / n, other / n, shallow=False))]


def measure(kind, args, folder):
    """A row for each mode of faults."""
    place = folder / kind.name
    bare = place / "bare"
    bare.mkdir(parents=True)
    program = kind(place, args.short)
    program.prepare()
    first = program.run([], bare)
    if first[0] != 0:
        return [{"name": kind.name, "problem": f"ends with {first[0]} without flashvm"}]
    modes = [mode for mode in args.fault or ["auto"] if not (program.needs_guard and mode == "handler")]
    return [under_flashvm(program, mode, args, bare, first) for mode in modes]


def under_flashvm(program, mode, args, bare, first):
    code, seconds, rss = first
    kind, place = type(program), program.folder / mode
    paged, store = place / "paged", place / "store"
    for path in (paged, store):
        path.mkdir(parents=True)
    budget = args.ram or kind.budget[args.short]
    stats = place / "stats.json"
    prefix = [str(args.flashvm), "run", "--ram", budget, "--fault", mode, "--flash", str(args.flash or store), "--stats", str(stats), "--"]
    if args.only_bare:
        prefix, stats = [], None
    paged_code, paged_seconds, paged_rss = program.run(prefix, paged)
    if not args.short:
        # The faster of two runs, before and after the paged one: other work on the machine may slow one of them.
        seconds = min(seconds, program.run([], bare)[1])
    title = f"{kind.__doc__} ({mode})" if len(args.fault or []) > 1 else kind.__doc__
    row = {
        "name": kind.name, "title": title, "what": program.what, "budget": budget,
        "bare_s": seconds, "bare_rss_mib": rss / 1024, "paged_s": paged_seconds,
        "paged_rss_mib": paged_rss / 1024, "code": paged_code, "problem": None,
    }
    differing = same(bare, paged)
    if paged_code != code:
        row["problem"] = f"ends with {paged_code} under flashvm"
    elif differing:
        row["problem"] = f"differs in {', '.join(differing)}"
    elif os.listdir(store):
        row["problem"] = f"left behind {os.listdir(store)}"
    row["digest"] = hashlib.sha256((bare / "printed").read_bytes()).hexdigest()[:12]
    if stats and stats.exists():
        found = json.loads(stats.read_text())
        totals = found["totals"]
        busiest = max(found["processes"], key=lambda p: p["faults"]["total"], default=None)
        row.update(
            faults=totals["faults"]["total"], major=totals["faults"]["major"], pages_in=totals["pages_in"],
            pages_out=totals["pages_out"], zero_skipped=totals["zero_pages_skipped"],
            prefetch=totals["prefetch"],
            latency=(totals.get("fault_latency_us") or (busiest or {}).get("fault_latency_us")),
        )
        # Evicted pages may all fit into the pool.
        if not row["problem"] and not totals["pages_out"] and not totals["evicted"]["dirty"]:
            row["problem"] = "nothing was paged out: the budget is no test"
    elif stats and not row["problem"]:
        row["problem"] = "no statistics were written"
    return row


def table(rows):
    lines = [
        "| program | work | RAM it takes | budget | without | with | times | faults (read) | pages in | pages out | p50 / p99 us |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        if r["problem"] or "faults" not in r:
            continue
        latency = r["latency"] or {}
        lines.append(
            f"| {r['title']} | {r['what']} | {r['bare_rss_mib']:.0f} MiB | {r['budget']} | {r['bare_s']:.1f} s "
            f"| {r['paged_s']:.1f} s | {r['paged_s'] / r['bare_s']:.1f} | {r['faults']:,} ({r['major']:,}) "
            f"| {r['pages_in']:,} | {r['pages_out']:,} | {latency.get('p50', 0):.0f} / {latency.get('p99', 0):.0f} |"
        )
    return "\n".join(lines) + "\n"


def machine():
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    kernel = re.match(r"\d+\.\d+", platform.release())[0]
    return f"{os.cpu_count()} CPUs, {round(int(memory[1]) / 1024 / 1024)} GiB RAM, Linux {kernel}"


DOCUMENT = """# Real programs

Written by `eval/programs.py --write docs/programs.md`; all figures are from one run,
on {machine}, with a load average of {quietest:.1f} to {busiest:.1f} (these runs
included): above the number of CPUs, other work slowed both sides.

Each program runs without a budget, under `flashvm run --ram BUDGET`, and without a budget again;
"without" is the faster of the first and the last run, "with" the middle one. The runs print and write the same,
byte for byte, except lines with spin's run time. "RAM it takes" is the peak resident set
without flashvm (of the largest process), "times" = with / without, "read" the faults that waited for flash.

{table}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="small sizes, for CI")
    parser.add_argument("--only", action="append", choices=[p.name for p in PROGRAMS])
    parser.add_argument("--flashvm", type=Path, default=ROOT / "target/release/flashvm")
    parser.add_argument("--flash", type=Path, help="folder or device of the store")
    parser.add_argument("--ram", help="one budget for all programs, instead of each program's own")
    parser.add_argument("--fault", action="append", choices=["auto", "inline", "protect", "handler"], help="the fault mode (auto); any number of times")
    parser.add_argument("--only-bare", action="store_true", help="check the script: both runs without flashvm")
    parser.add_argument("--write", type=Path, help="write the document here")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not args.only_bare and not args.flashvm.exists():
        sys.exit(f"programs: {args.flashvm} does not exist; run cargo build --release")

    rows, loads = [], []
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        for kind in PROGRAMS:
            if args.only and kind.name not in args.only:
                continue
            try:
                measured = measure(kind, args, Path(folder))
            except Missing as reason:
                print(f"SKIPPED: {kind.name}: {reason}", flush=True)
                continue
            rows += measured
            loads.append(os.getloadavg()[0])
            for row in measured:
                print(f"{row.get('title', kind.name)}: " + (row["problem"] or f"same output, {row['bare_s']:.1f} s "
                      f"without, {row['paged_s']:.1f} s with {row['budget']} of {row['bare_rss_mib']:.0f} MiB"), flush=True)
            shutil.rmtree(Path(folder) / kind.name)
    print("\n" + table(rows))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    if any(row["problem"] for row in rows):
        sys.exit(1)
    if args.write:
        text = DOCUMENT.format(machine=machine(), quietest=min(loads), busiest=max(loads), table=table(rows))
        args.write.write_text(text.rstrip() + "\n")


main()
