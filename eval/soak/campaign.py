"""Tries to make programs die under the pager, get wrong data, exceed their budget or leave something behind.

Each run is checked: its output equals that of the program without the pager; it ends with exit code 0 and without a
message of the pager; the pages that flashvm counts are within the budget, and so is the managed memory that the
kernel counts in smaps; no file, memory or process is left. Faults that are injected into reads may end a program,
with a message; they never change its output.

Results are appended to a state file with the build that they belong to: an interrupted plan continues where it
stopped, unless flashvm was built again. The exit code is 1 if a run failed, 130 after Ctrl-C.
"""

import argparse
import concurrent.futures
import hashlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import plans
import processes
import programs
import report
import run

ROOT = Path(__file__).resolve().parent.parent.parent
SHORT_KILLS = 20
# Seconds after which a short campaign starts no further program, and no further kill.
SHORT_PROGRAMS_S, SHORT_KILLS_S = 130, 170
KILL_TRIES_MAX = 3  # runs per requested kill: some end before it

EXAMPLES = """examples:
  eval/soak.sh 8                                                eight hours of random runs
  eval/soak.sh --kills 1000 --jobs 2                            kill -9 of supervisor, program or child
  eval/soak.sh --count sqlite=200,redis=50 --size full          that many runs of each, at a tight budget
  eval/soak.sh --count memcached=100 --option=--policy=clock --option=--prefetcher=off
  eval/soak.sh --replay 17                                      run number 17 of the state file again
  eval/soak.sh --report                                         the results of this build"""


class Bound(argparse.Action):
    """An option for the preceding --count; without one, for all runs."""

    def __call__(self, parser, namespace, value, option=None):
        counts = getattr(namespace, "counts", None) or []
        target = counts[-1] if counts else namespace.common
        if self.dest == "option":
            target.setdefault("options", []).append(value)
        else:
            target[self.dest] = value


class Count(argparse.Action):
    def __call__(self, parser, namespace, value, option=None):
        wanted = {}
        for item in value.split(","):
            name, _, number = item.partition("=")
            if name.partition(":")[0] not in programs.ALL or not number.isdigit():
                parser.error(f"{option}: '{item}': write PROGRAM=N, with a program of {', '.join(programs.ALL)}")
            wanted[name] = int(number)
        namespace.counts = (namespace.counts or []) + [{"programs": wanted}]


def arguments():
    parser = argparse.ArgumentParser(prog="eval/soak.sh", description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what to run")
    what.add_argument("hours", nargs="?", type=float, help="hours of random runs")
    what.add_argument("--short", action="store_true", help="each mode and program once, and 20 kills: three minutes at most")
    what.add_argument("--kills", type=int, metavar="N", help="kill -9 of N short runs")
    what.add_argument("--count", "--runs", dest="counts", action=Count, metavar="PROGRAM=N[,...]", help="run each N times")
    what.add_argument("--replay", type=int, metavar="NUMBER", help="repeat a run of the state file")
    what.add_argument("--report", action="store_true", help="only print what is in the state file")
    of = parser.add_argument_group("options for the preceding --count, or for all")
    of.add_argument("--size", action=Bound, choices=programs.SIZES, help="of the inputs (full; in random runs: any)")
    of.add_argument("--ram", action=Bound, metavar="SIZE", help="the budget (tight for the program)")
    of.add_argument("--option", action=Bound, metavar="OPTION", help="an option of flashvm run")
    of.add_argument("--kill", action=Bound, metavar="WHO@SECONDS", help="kill -9 of supervisor, program or any")
    how = parser.add_argument_group("how")
    how.add_argument("--only", metavar="PROGRAM,...", help="programs for random runs")
    how.add_argument("--modes", metavar="MODE,...", help=f"modes for random runs: {', '.join(plans.MODES)}")
    how.add_argument("--seed", type=int, help="seed of the first run; each later run adds one")
    how.add_argument("--jobs", type=int, default=1, help="runs at a time (1)")
    how.add_argument("--keep-going", action="store_true", help="go on after a failure")
    how.add_argument("--slack", type=int, default=0, metavar="PAGES", help="tolerated pages above the budget (0)")
    how.add_argument("--flashvm", type=Path, default=ROOT / "target/release/flashvm")
    how.add_argument("--work", type=Path, help="folder of inputs and stores, on a disk (TMPDIR, or /var/tmp)")
    how.add_argument("--state", type=Path, help="results (in XDG_STATE_HOME, or ~/.local/state: flashvm/soak.jsonl)")
    parser.set_defaults(common={})
    options = parser.parse_args()
    if not (options.hours or options.short or options.kills or options.counts or options.replay or options.report):
        parser.error("nothing to do: give hours, --short, --kills, --count, --replay or --report")
    if not options.state:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
        options.state = Path(base) / "flashvm/soak.jsonl"
    for name in (options.only or "").split(","):
        if name and name.partition(":")[0] not in programs.ALL:
            parser.error(f"--only: '{name}': there are {', '.join(programs.ALL)}")
    return options


def build_id(flashvm):
    if not flashvm.exists():
        raise SystemExit(f"soak: {flashvm} does not exist; run cargo build --release, or name the command with --flashvm")
    return hashlib.sha256(flashvm.read_bytes()).hexdigest()[:12]


class Campaign:
    def __init__(self, options, folder, stop):
        self.options, self.stop = options, stop
        self.build = build_id(options.flashvm)
        # A copy: a build during the campaign does not change what is tested.
        flashvm = Path(shutil.copy(options.flashvm, folder / "flashvm"))
        self.version = subprocess.run([flashvm, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        self.state = report.State(options.state, self.build)
        self.shelf = programs.Shelf(folder)
        (folder / "probe").mkdir()
        self.registry = plans.Registry(flashvm, folder / "probe")
        self.runner = run.Runner(flashvm, self.shelf, folder, options.state.parent / "failures", options.slack, stop)
        self.skipped = list(self.registry.skipped)
        if reason := processes.Freezer.missing():
            self.skipped.append(f"samples of resident memory: {reason}")
        self.lock = threading.Lock()
        self.started = time.monotonic()
        self.done = self.failed = self.made = 0
        self.missing = set()
        self.refused = False

    def names(self, size):
        """The programs that this machine has."""
        names = self.options.only.split(",") if self.options.only else list(programs.ALL)
        found = []
        for name in names:
            try:
                self.shelf.program(name, size)
                found.append(name)
            except programs.Missing as reason:
                self.skip(name, reason)
        if not found:
            raise SystemExit("soak: no program of those is installed")
        return found

    def skip(self, name, reason):
        if name not in self.missing:
            self.missing.add(name)
            self.skipped.append(f"{name}: {reason}")
            print(f"SKIPPED: {name}: {reason}", flush=True)

    def modes(self):
        wanted = self.options.modes.split(",") if self.options.modes else list(self.registry.modes)
        modes = [mode for mode in wanted if mode in self.registry.modes]
        if not modes:
            raise SystemExit(f"soak: --modes: this machine and build have {', '.join(self.registry.modes)}")
        return modes

    def one(self, kind, plan, left):
        """Runs a plan, records it and prints a line. None: it was not run."""
        with self.lock:
            self.made += 1
            number = self.made
        try:
            record = self.runner.run(plan, number)
        except programs.Missing as reason:
            with self.lock:
                self.skip(plan.program, reason)
            return None
        except run.Interrupted:
            return None
        except run.Refused as reason:
            print(f"REFUSED: {reason}: {shlex.join(plan.words())}", flush=True)
            if kind != "hours":  # random options may conflict, chosen ones must not
                self.refused = True
            return None
        record.update(campaign=kind, version=self.version, time=time.strftime("%Y-%m-%dT%H:%M:%S"))
        with self.lock:
            self.state.add(record)
            self.done += 1
            self.failed += bool(record["problems"])
            share = record.get("share_counted")
            print(f"[{elapsed(self.started)}, {left()}, {self.failed} failed] {record['number']}: {plan.program} "
                  f"{record['outcome']} in {record['seconds']:.1f} s, RAM {share or 0:.1%} counted, "
                  f"{record['share_sampled']:.1%} sampled: {shlex.join(plan.words())}", flush=True)
            for problem, what in record["problems"]:
                print(f"  FAILED: {problem}: {what}", flush=True)
            if record["problems"] and not self.options.keep_going:
                self.stop.set()
        return record

    def all(self, kind, source, left):
        """Runs the plans of `source`, `--jobs` at a time."""
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            running = set()
            source = iter(source)
            while True:
                while len(running) < self.options.jobs and not self.stop.is_set():
                    plan = next(source, None)
                    if plan is None:
                        break
                    running.add(pool.submit(self.one, kind, plan, left))
                if not running:
                    return
                ended, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in ended:
                    future.result()

    def first_seed(self):
        """The seed of random runs: the given one, or a new one at each start."""
        given = self.options.seed
        return given if given is not None else random.SystemRandom().randrange(1 << 30)

    def random_runs(self):
        size = self.options.common.get("size")
        sizes = [size] if size else ["tiny", "small", "small", "small", "full"]
        names, modes, torture = self.names("tiny"), self.modes(), plans.parts(self.shelf)
        end = self.started + self.options.hours * 3600
        first = self.first_seed()

        def source():
            seed = first
            while time.monotonic() < end:
                plan = plans.drawn(seed, self.registry, names, modes, sizes, torture)
                common = self.options.common
                plan.options += tuple(common.get("options", ()))
                plan.ram, plan.kill = common.get("ram", plan.ram), common.get("kill", plan.kill)
                yield plan
                seed += 1

        self.all("hours", source(), lambda: f"{max(end - time.monotonic(), 0) / 3600:.2f} h left")

    def counted(self):
        """Runs in the state file count."""
        wanted = []
        for count in self.options.counts:
            of = {**self.options.common, **count}
            options = tuple(self.options.common.get("options", ())) + tuple(count.get("options", ()))
            for name, number in count["programs"].items():
                size = of.get("size", "full")
                plan = run.Plan(name, size, of.get("ram") or plans.ram(name, size), options, 0, of.get("kill", ""))
                before = {r["plan"]["seed"] for r in self.state.records
                          if r["campaign"] == "count" and same(r["plan"], plan)}
                first = 1 if self.options.seed is None else self.options.seed
                seeds = [seed for seed in range(first, first + number)
                         if self.options.seed is not None or seed not in before]
                if len(seeds) < number:
                    print(f"{name}: {number - len(seeds)} of {number} are in the state file", flush=True)
                wanted.append([run.Plan(**{**vars(plan), "seed": seed}) for seed in seeds])
        # Round robin, so that an interrupted plan has run every program equally often.
        turns = [plan for turn in range(max(map(len, wanted))) for group in wanted for plan in group[turn:turn + 1]]
        total, before = len(turns), self.done
        self.all("count", turns, lambda: f"{total - self.done + before} left")

    def kills(self, number, seconds=float("inf")):
        names = [name for name in self.names("tiny") if name in plans.KILLED]
        modes, first = self.modes(), self.first_seed()
        # Kills of earlier starts count, except with --seed and --short.
        killed = [0 if self.options.seed is not None or self.options.short else
                  sum(r["campaign"] == "kills" and bool(r["killed"]) for r in self.state.records)]
        before, begun = killed[0], len(self.state.records)

        def now():
            return before + sum(r["campaign"] == "kills" and bool(r["killed"]) for r in self.state.records[begun:])

        def source():
            for seed in range(first, first + number * KILL_TRIES_MAX):
                if now() >= number:
                    return
                if time.monotonic() - self.started > seconds:
                    self.skip(f"{number - now()} of {number} kills", "no time left")
                    return
                yield plans.killing(seed, self.registry, names, modes)

        self.all("kills", source(), lambda: f"{max(number - now(), 0)} kills left")

    def short(self):
        names = self.names("tiny")
        what = plans.short(self.registry, names, plans.parts(self.shelf) if "torture" in names else [])
        before = self.done

        def source():
            for i, plan in enumerate(what):
                if time.monotonic() - self.started > SHORT_PROGRAMS_S:
                    self.skip(f"{len(what) - i} of {len(what)} programs", "no time left")
                    return
                yield plan

        self.all("short", source(), lambda: f"{len(what) - self.done + before} left")
        if not self.stop.is_set():
            self.kills(SHORT_KILLS, SHORT_KILLS_S)

    def replay(self, number):
        if not 0 < number <= len(self.state.records):
            raise SystemExit(f"soak: --replay {number}: {self.options.state} has {len(self.state.records)} runs of this build")
        plan = self.state.records[number - 1]["plan"]
        self.all("replay", [run.Plan(**{**plan, "options": tuple(plan["options"])})], lambda: "a replay")


def same(recorded, plan):
    return (recorded["program"], recorded["size"], recorded["ram"], tuple(recorded["options"]), recorded["kill"]) == (
        plan.program, plan.size, plan.ram, plan.options, plan.kill)


def elapsed(since):
    seconds = int(time.monotonic() - since)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def main():
    options = arguments()
    if options.report:
        build = build_id(options.flashvm)
        text, good = report.report(report.State(options.state, build).records, build)
        print(text)
        return 0 if good else 1
    stop, ended_by = threading.Event(), []

    def end(number, _):
        ended_by.append(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    base = options.work or os.environ.get("TMPDIR") or "/var/tmp"
    try:
        Path(base).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="soak-", dir=base))
    except OSError as error:
        print(f"soak: --work {base}: {error.strerror}: name a folder that can be written", file=sys.stderr)
        return 2
    try:
        campaign = Campaign(options, folder, stop)
        begun = len(campaign.state.records)
        print(f"{campaign.version}, build {campaign.build}; results in {options.state}", flush=True)
        for what in campaign.skipped:
            print(f"SKIPPED: {what}", flush=True)
        if options.short:
            campaign.short()
        if options.replay:
            campaign.replay(options.replay)
        if options.counts and not stop.is_set():
            campaign.counted()
        if options.kills and not stop.is_set():
            campaign.kills(options.kills)
        if options.hours and not stop.is_set():
            campaign.random_runs()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    # --short and --replay report the runs of this start, other plans all runs of this build.
    records = campaign.state.records[begun:] if options.short or options.replay else campaign.state.records
    text, good = report.report(records, campaign.build, campaign.skipped)
    print("\n" + text)
    if ended_by:
        return 128 + ended_by[0]
    return 0 if good and not campaign.refused else 1


if __name__ == "__main__":
    sys.exit(main())
