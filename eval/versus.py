#!/usr/bin/env python3
"""Real programs in less RAM than they need: flashvm beside kernel swap, zswap and zram.

usage (as root): eval/versus.py [--only sqlite,gcc] [--modes flashvm,swap,zswap,zram] [--rounds 3] [--size full]
                                [--option=--policy=car] [--json FILE] [--table FILE] [--svg FILE]
                 eval/versus.py --ram 96M [--modes ...] [--rounds 3] -- PROGRAM [ARGS]...

The modes take turns within a round. The kernel's side is a memory cgroup whose limit is flashvm's budget. Where
the cgroup does not count the pool of zswap or zram (version 1), a thread holds limit + pool = budget; zswap's pool
gets at most half of the budget. A run counts only if it takes more than 1.05 budgets for at most a twentieth of its
time, and the program prints the same as without a limit. The OOM killer of a version 1 cgroup ends programs although swap is free: here they wait instead, and get up to 1 MiB more.
Pages in and out are flashvm's statistics, or pswpin and pswpout of the whole machine: run
nothing else meanwhile. Time is wall time; CPU is that of the program's processes, flashvm included.

examples:
  sudo eval/versus.py --only sqlite --rounds 1
  sudo eval/versus.py --rounds 3 --json versus.json --table versus.md --svg docs/versus.svg
  sudo eval/versus.py --ram 96M --modes flashvm,swap -- perl -ne '$lines{$_}++; END { print scalar(%lines), "\\n" }' words.txt
"""

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "soak"))

import peers
import programs

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("sort", "sqlite", "dictionary", "node", "gcc", "bfs", "redis", "memcached")
KERNEL = {"swap": peers.SwapFile, "zswap": peers.Zswap, "zram": peers.Zram}
MODES = ("free", "flashvm", *KERNEL)
SWAP_MIB = 4096
# Most of the time that a run may use more than 1.05 budgets.
OVER_MOST = 0.05


def swapped():
    """Pages that the kernel read from swap and wrote to it."""
    with open("/proc/vmstat") as file:
        counts = dict(line.split() for line in file)
    return int(counts["pswpin"]), int(counts["pswpout"])


class Given:
    """A program of the user's, which runs in this folder."""

    size, env, flash_size, cwd = "given", {}, f"{SWAP_MIB}M", Path.cwd()

    def __init__(self, words, ram_mib):
        self.words, self.ram_mib = words, {self.size: ram_mib}
        self.name = Path(words[0]).name

    def command(self, number):
        return self.words


def mebibytes(text):
    """A size such as 96M or 1G, in MiB."""
    found = re.fullmatch(r"([0-9]+)([MG])", text)
    if not found or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no size: write 96M or 1G")
    return int(found[1]) * {"M": 1, "G": 1024}[found[2]]


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.shelf = programs.Shelf(folder)
        self.expected = {}

    def program(self, name):
        """The program of this name: one of ours, or the user's."""
        return self.arguments.given or self.shelf.program(name, self.arguments.size)

    def attempt(self, program, words, peer=None, budget=None, stats=None):
        """Runs a command; returns its figures."""
        group = peers.Cgroup("flashvm-versus") if budget else None
        if group:
            group.limit(budget)
            group.spare()
        work = Path(tempfile.mkdtemp(dir=self.folder))
        balance = None
        if hasattr(peer, "pool_bytes") and not (peer.COUNTED and group.version == 2):
            balance = peers.Balance(group, peer, budget)
            balance.start()
        before, start, cpu = swapped(), time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        child = subprocess.Popen(
            [str(word) for word in words], cwd=getattr(program, "cwd", work), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=programs.environment(program, work), start_new_session=True,
            preexec_fn=group.join if group else None)
        try:
            out, err = child.communicate(timeout=self.arguments.timeout)
        except subprocess.TimeoutExpired:
            out, err = b"", b"cut off"
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
        seconds, after = time.monotonic() - start, swapped()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = {
            "seconds": round(seconds, 2),
            "cpu_s": round(used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime, 2),
            "pages_in": after[0] - before[0], "pages_out": after[1] - before[1],
            "output": hashlib.sha256(out).hexdigest()[:16], "code": child.returncode,
        }
        if child.returncode:
            killed = "killed, as the kernel's OOM killer does" if child.returncode == -signal.SIGKILL else "failed"
            result["why"] = (err.decode(errors="replace").strip().splitlines() or [killed])[-1][:160]
        if balance:
            result["over_budget"], result["pool_mib"] = round(balance.stop(), 3), balance.pool_most >> 20
            if result["over_budget"] > OVER_MOST:
                result["why"] = f"used more than 1.05 budgets for {result['over_budget']:.0%} of the time"
        if stats and stats.exists():
            totals = json.loads(stats.read_text())["totals"]
            result["pages_in"], result["pages_out"] = totals["pages_in"], totals["pages_out"]
            result["resident_pages_max"] = totals["resident_pages_max"]
        if group:
            result["oom_waits"] = group.end_sparing()
            result["peak_mib"] = group.peak_mib()
            group.remove()
        shutil.rmtree(work, ignore_errors=True)
        return result

    def run(self, mode, program):
        budget = program.ram_mib[program.size] << 20
        if mode == "free":
            return self.attempt(program, program.command(1))
        if mode != "flashvm":
            peer = KERNEL[mode](self.folder, SWAP_MIB)
            try:
                return self.attempt(program, program.command(1), peer, budget)
            finally:
                peer.remove()
        stats = self.folder / "stats.json"
        stats.unlink(missing_ok=True)
        command = [self.arguments.flashvm, "run", "--quiet", "--ram", budget, "--flash", self.folder, "--flash-size",
                   program.flash_size, "--stats", stats, *self.arguments.option, "--", *program.command(1)]
        return self.attempt(program, command, stats=stats)

    def right(self, name, result):
        return result["code"] == 0 and result["output"] == self.expected[name] and "why" not in result


def median(bench, name, runs, key="seconds"):
    """The median of the runs with the right output; None if most failed."""
    good = [run[key] for run in runs if bench.right(name, run)]
    return statistics.median(good) if 2 * len(good) > len(runs) else None


def table(bench, results, modes):
    """The medians as a table in Markdown, and the geometric means of the ratios."""
    def shown(value):
        return "failed" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
    lines = ["| program | RAM | " + " | ".join(f"{mode}, s | in | out" for mode in modes) + " |",
             "| --- | --- | " + " | ".join("---: | ---: | ---:" for _ in modes) + " |"]
    for name, runs in results.items():
        program = bench.program(name)
        cells = [shown(median(bench, name, runs[mode], key)) for mode in modes for key in ("seconds", "pages_in", "pages_out")]
        lines.append(f"| {name} | {program.ram_mib[program.size]}M | " + " | ".join(cells) + " |")
    for mode in modes:
        if mode in ("free", "flashvm") or "flashvm" not in modes:
            continue
        ratios = []
        for name, runs in results.items():
            ours, theirs = median(bench, name, runs["flashvm"]), median(bench, name, runs[mode])
            if ours and theirs:
                ratios.append((theirs / ours, name))
        if ratios:
            mean = statistics.geometric_mean(ratio for ratio, _ in ratios)
            lines += ["", f"{mode} takes {mean:.2f} times as long as flashvm (geometric mean of {len(ratios)} programs; least "
                      f"{min(ratios)[0]:.2f}, {min(ratios)[1]}; programs that either did not finish are left out)."]
    return "\n".join(lines) + "\n"


COLOURS = {"free": "#9aa0a6", "flashvm": "#1a73e8", "swap": "#d93025", "zswap": "#e8710a", "zram": "#188038"}
WIDTH, LABEL, BAR = 720, 110, 14


def picture(bench, results, modes):
    """The medians as bars, in SVG: a group for each program, a bar for each mode."""
    times = {name: {mode: median(bench, name, runs[mode]) for mode in modes} for name, runs in results.items()}
    longest = max((s for by_mode in times.values() for s in by_mode.values() if s), default=1)
    scale, top, lines = (WIDTH - LABEL - 90) / longest, 30, []
    for at, mode in enumerate(modes):
        x = LABEL + at * 110
        lines.append(f'<rect x="{x}" y="8" width="12" height="12" fill="{COLOURS[mode]}"/><text x="{x + 18}" y="18">{mode}</text>')
    for name, by_mode in times.items():
        lines.append(f'<text x="{LABEL - 8}" y="{top + len(modes) * BAR / 2 + 4:g}" text-anchor="end">{name}</text>')
        for mode, seconds in by_mode.items():
            width = (seconds or 0) * scale
            said = f"{seconds:.1f} s" if seconds else "did not finish"
            lines.append(f'<rect x="{LABEL}" y="{top}" width="{width:.1f}" height="{BAR - 3}" fill="{COLOURS[mode]}"/>'
                         f'<text x="{LABEL + width + 5:.1f}" y="{top + BAR - 4}">{said}</text>')
            top += BAR
        top += BAR
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" '
            'font-family="sans-serif" font-size="11" fill="#444"><rect width="100%" height="100%" fill="#fff"/>')
    return "\n".join([head, *lines, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flashvm", type=Path, default=ROOT / "target/release/flashvm", help="the command (%(default)s)")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="programs (%(default)s)")
    parser.add_argument("--modes", default="flashvm,swap,zswap,zram", help="of %s" % ", ".join(MODES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--size", choices=programs.SIZES, default="full", help="of the programs' inputs (%(default)s)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds of a run (%(default)g)")
    parser.add_argument("--option", action="append", default=[], help="an option of flashvm run")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="for inputs, swap file and store (%(default)s)")
    parser.add_argument("--ram", type=mebibytes, help="of the program after --")
    parser.add_argument("--json", type=Path, help="all runs")
    parser.add_argument("--table", type=Path, help="the table of medians, in Markdown")
    parser.add_argument("--svg", type=Path, help="the medians as bars")
    line, words = sys.argv[1:], []
    if "--" in line:
        at = line.index("--")
        line, words = line[:at], line[at + 1:]
    arguments = parser.parse_args(line)
    modes, names, known_programs = arguments.modes.split(","), arguments.only.split(","), PROGRAMS
    if bool(words) != bool(arguments.ram):
        parser.error("--ram and a program belong together: write --ram 96M -- PROGRAM [ARGS]...")
    arguments.given = Given(words, arguments.ram) if words else None
    if words:
        if shutil.which(words[0]) is None:
            parser.error(f"'{words[0]}': no such program")
        names = known_programs = [arguments.given.name]
    for kind, given, known in (("mode", modes, MODES), ("program", names, known_programs)):
        for name in given:
            if name not in known:
                parser.error(f"unknown {kind} '{name}': known are {', '.join(known)}")
    if os.geteuid() != 0 and set(modes) & set(KERNEL):
        parser.error("swap, zswap and zram need root: leave them out with --modes flashvm")
    if not arguments.flashvm.exists():
        parser.error(f"{arguments.flashvm} does not exist: cargo build --release")
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="versus-", dir=arguments.folder) as folder:
        bench, results = Bench(arguments, Path(folder)), {}
        for name in names:
            try:
                program = bench.program(name)
                bare = bench.attempt(program, program.command(1))
                bench.expected[name] = bare["output"]
                if arguments.given:
                    print(f"{name:11}   free     {bare['seconds']:8.2f} s", flush=True)
            except programs.Missing as reason:
                print(f"{name}: left out: {reason}")
                continue
            results[name] = {mode: [] for mode in modes}
            for number in range(arguments.rounds):
                for mode in modes:
                    try:
                        result = bench.run(mode, program)
                    except peers.Refused as reason:
                        parser.error(str(reason))
                    results[name][mode].append(result)
                    word = "right" if bench.right(name, result) else f"FAILED: {result.get('why', 'wrong output')}"
                    print(f"{name:11} {number + 1} {mode:8} {result['seconds']:8.2f} s, in {result['pages_in']:>9,}, "
                          f"out {result['pages_out']:>9,}  {word}", flush=True)
        text = table(bench, results, modes)
        print(text)
        if arguments.table:
            arguments.table.write_text(text)
        if arguments.svg:
            arguments.svg.write_text(picture(bench, results, modes))
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    wrong = any(not bench.right(name, run) for name, runs in results.items() for run in runs.get("flashvm", []))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
