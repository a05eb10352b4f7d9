"""One run under the pager, and all checks of its result."""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import processes
import programs

MARK = "SOAK_RUN"
# Seconds in which the processes of a killed run must end by themselves.
GONE_S_MAX = 10
# In handler mode the kernel copies pages to which other threads store during a fork before the pager hears of it.
FORK_SLACK = 1.03
TIMEOUT_S = {"tiny": 120, "small": 400, "full": 1800}
PAGE_BYTES = 4096
KEPT_BYTES_MAX = 4 << 20

SAID = re.compile(r"^flashvm: process \d+: .*", re.M)
HARMLESS = re.compile(r"refuses discards")
LOST = re.compile(r"^flashvm: process \d+: .* (is|are) lost\b", re.M)
REFUSED = re.compile(r"^flashvm: (?!process \d).*", re.M)


class Interrupted(Exception):
    """The campaign is ending."""


class Refused(Exception):
    """These options conflict, or are unavailable on this machine: nothing was run."""


@dataclasses.dataclass
class Plan:
    """Everything on which a run depends, except time."""

    program: str
    size: str = "small"
    ram: str = ""
    options: tuple = ()
    seed: int = 1
    kill: str = ""  # "supervisor", "program" or "any", "@" and seconds after the start

    def words(self):
        """The command that repeats this run."""
        words = ["eval/soak.sh", "--count", f"{self.program}=1", "--size", self.size, "--ram", self.ram, "--seed", str(self.seed)]
        if self.kill:
            words += ["--kill", self.kill]
        return words + [f"--option={option}" for option in self.options]

    def mode(self):
        """A short name of the fault mode."""
        options = list(self.options)
        handler = [v for k, v in zip(options, options[1:]) if k == "--fault"] or ["auto"]
        handler += [o.partition("=")[2] for o in options if o.startswith("--fault=")]
        names = [handler[-1]]
        if "512" in options or "--granularity=512" in options:
            names.append("small pages")
        names += [o[2:] for o in options if o in ("--no-markers", "--no-move", "--no-uring")]
        return ", ".join(names)

    def injects(self):
        return next((o for o in self.options if o.startswith("--inject=")), "")

    def may_lose(self):
        """Whether pages may be lost, with a message and SIGBUS."""
        return bool(re.search(r"\b(read|flip)=", self.injects()))


def bare(program, folder, stop):
    """Digest and seconds of a run without the pager."""
    place = folder / f"bare-{program.name}-{program.size}"
    (place / "work").mkdir(parents=True)
    start = time.monotonic()
    with open(place / "out", "wb") as out, open(place / "err", "wb") as err:
        child = subprocess.Popen(
            [str(word) for word in program.command(1)], cwd=place / "work", stdin=subprocess.DEVNULL,
            stdout=out, stderr=err, start_new_session=True, env=programs.environment(program, place / "work"))
        code = wait(child, TIMEOUT_S[program.size], stop)
    if code is None:
        processes.kill(processes.of_session(child.pid))
        child.wait()
    if code != 0:
        raise RuntimeError(f"{program.name} ends with {code} without the pager: "
                           + (place / "err").read_text(errors="replace")[-500:])
    result = digest(place / "out"), time.monotonic() - start
    shutil.rmtree(place)
    return result


def wait(child, seconds, stop):
    """The exit code; None: it has not ended in time. Raises Interrupted."""
    end = time.monotonic() + seconds
    while True:
        try:
            return child.wait(min(0.2, max(end - time.monotonic(), 0.001)))
        except subprocess.TimeoutExpired:
            if stop.is_set():
                child.terminate()
                try:
                    child.wait(2)
                except subprocess.TimeoutExpired:
                    pass
                processes.kill(processes.of_session(child.pid))
                child.wait()
                raise Interrupted from None
            if time.monotonic() >= end:
                return None


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


class Killer(threading.Thread):
    """Kills a process of a run at the planned time. `killed` is the process."""

    def __init__(self, plan, supervisor):
        super().__init__(daemon=True)
        self.who, _, after = plan.kill.partition("@")
        self.seconds, self.seed, self.supervisor = float(after), plan.seed, supervisor
        self.done, self.killed = threading.Event(), ""

    def run(self):
        if self.done.wait(self.seconds):
            return
        victim = self.supervisor
        if self.who == "program":
            victim = min(processes.children(self.supervisor), default=None)
        elif self.who == "any":
            others = sorted(set(processes.of_session(self.supervisor)) - {self.supervisor})
            victim = others[self.seed % len(others)] if others else None
        if victim is None:
            return
        try:
            # The main thread stops this thread before it reaps the supervisor, so the supervisor's id cannot be reused.
            os.kill(victim, signal.SIGKILL)
            self.killed = self.who
        except ProcessLookupError:
            pass

    def stop(self):
        self.done.set()
        self.join()


class Runner:
    """Runs one build of flashvm in a folder."""

    def __init__(self, flashvm, shelf, folder, kept, slack_pages, stop):
        self.flashvm, self.shelf, self.folder, self.kept = flashvm, shelf, folder, kept
        self.slack_pages, self.stop = slack_pages, stop

    def run(self, plan, number):
        """The record of a run. Raises Missing, Refused, Interrupted, and RuntimeError when the bare run fails."""
        program = self.shelf.program(plan.program, plan.size)
        expected, bare_s = None, None
        if program.same_output:
            expected, bare_s = self.shelf.expected(program, lambda p: bare(p, self.folder, self.stop))
        place = self.folder / f"run-{number}"
        work, temporary, store = place / "work", place / "tmp", place / "store"
        for path in (work, temporary, store):
            path.mkdir(parents=True)
        stats = place / "stats.json"
        command = [str(self.flashvm), "run", "--ram", plan.ram, "--flash", str(store), "--stats", str(stats),
                   *flash_size(program, plan), *plan.options, "--", *(str(word) for word in program.command(plan.seed))]
        mark = f"{MARK}={os.getpid()}-{number}"
        environment = programs.environment(program, temporary)
        environment[MARK] = mark.partition("=")[2]
        freezer = None if processes.Freezer.missing() else processes.Freezer(f"flashvm-soak-{os.getpid()}-{number}")
        start = time.monotonic()
        with open(place / "out", "wb") as out, open(place / "err", "wb") as err:
            child = subprocess.Popen(freezer.command(command) if freezer else command, cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                     start_new_session=True, env=environment)
        killer = Killer(plan, child.pid) if plan.kill else None
        sampler = processes.Sampler(freezer, "small pages" in plan.mode(), ram_bytes(plan.ram))
        if freezer:
            sampler.start()
        if killer:
            killer.start()
        try:
            code = self.wait(child, TIMEOUT_S[plan.size], killer)
            seconds = time.monotonic() - start
            problems = []
            if code is None:
                problems.append(("hung", f"no end in {seconds:.0f} s"))
                self.look(child.pid, place)
        except Interrupted:
            if freezer:
                sampler.stop()
                freezer.close()
            raise
        finally:
            if freezer:
                sampler.stop()
            if killer:
                killer.stop()
        killed = killer.killed if killer else ""
        gone_s, left = self.gone(child, mark, code, bool(killed))
        if left and code is not None:
            problems.append(("left behind", f"processes {left} after {gone_s:.1f} s"))
        if freezer:
            freezer.close()
        said = (place / "err").read_text(errors="replace")
        if code == 2 and not stats.exists() and (refusal := REFUSED.search(said)):
            shutil.rmtree(place)
            raise Refused(refusal[0])
        problems += self.judge(plan, program, code, killed, said, digest(place / "out"), expected)
        problems += leftovers(store, temporary, work, bool(killed) or code != 0)
        counted, found = self.budget(plan, stats, sampler, code, killed)
        problems += found
        record = {
            "program": plan.program, "size": plan.size, "mode": plan.mode(), "plan": dataclasses.asdict(plan),
            "command": command, "replay": plan.words(), "code": code, "killed": killed, "seconds": round(seconds, 3),
            "bare_s": bare_s and round(bare_s, 3), "gone_s": round(gone_s, 2), "samples": sampler.samples,
            "unfrozen": sampler.unfrozen,
            "share_sampled": round(sampler.bytes_max / ram_bytes(plan.ram), 4), "samples_above": sampler.above,
            **counted, "problems": problems,
            "outcome": "failed" if problems else "killed" if killed else "lost" if code != 0 else "ok",
        }
        if problems:
            self.keep(place, record, number)
        shutil.rmtree(place, ignore_errors=True)
        return record

    def wait(self, child, seconds, killer):
        """As `wait`, but reaps the child after the killer has ended: its process id cannot be reused meanwhile."""
        if not killer:
            return wait(child, seconds, self.stop)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.stop.is_set():
            if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                killer.stop()
                return child.wait()
            time.sleep(0.01)
        killer.stop()
        return wait(child, 0, self.stop)

    def gone(self, child, mark, code, killed):
        """Waits until no process of the run is left; returns the time, and the processes that had to be killed."""
        start = time.monotonic()
        bound = 0 if code is None else GONE_S_MAX if killed else 0.5
        while True:
            left = processes.of_session(child.pid)
            if code is None or not left:
                left = left or [pid for pid in processes.marked(mark.encode() + b"\0") if pid != child.pid]
            took = time.monotonic() - start
            if not left or took >= bound:
                break
            time.sleep(0.02)
        names = [f"{pid} ({name_of(pid)})" for pid in left]
        processes.kill(left)
        child.wait()
        return took, names

    def look(self, session, place):
        """Writes the stacks of all threads of a hung run."""
        with open(place / "hung", "w") as file:
            for pid in processes.of_session(session):
                for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
                    for what in ("comm", "wchan", "syscall", "stack"):
                        try:
                            with open(f"/proc/{pid}/task/{task}/{what}") as source:
                                file.write(f"{pid}/{task} {what}: {source.read().strip()}\n")
                        except OSError:
                            pass
            if shutil.which("gdb"):
                for pid in processes.of_session(session):
                    try:
                        subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 30"], timeout=30,
                                       stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False)
                    except subprocess.TimeoutExpired:
                        pass

    def judge(self, plan, program, code, killed, said, output, expected):
        """Problems with how a run ended and what it printed."""
        problems = []
        if code == 0 and expected is not None and output != expected:
            problems.append(("wrong output", f"{output} instead of {expected}"))
        if code is None or killed:
            return problems
        lost = plan.may_lose() and (LOST.search(said) or code in program.codes_injected)
        messages = [m for m in SAID.findall(said) if not HARMLESS.search(m)]
        if lost:
            messages = [m for m in messages if not LOST.match(m)]
        if code != 0 and not lost:
            own = [line for line in said[:said.find("\nflashvm: ")].splitlines() if line.strip()]
            reason = messages[0] if messages else own[-1] if own else said[:200]
            problems.append(("ended", f"exit code {code}: {reason[:300]}"))
        elif messages and program.same_output and code == 0:
            problems.append(("ended", f"exit code 0, but: {messages[0][:300]}"))
        return problems

    def budget(self, plan, stats, sampler, code, killed):
        """Checks statistics and samples against the budget."""
        problems, counted = [], {}
        bound = ram_bytes(plan.ram)
        try:
            totals = json.loads(stats.read_text())
            pages = totals["ram_budget_pages"]
            parts = [totals["totals"], *totals["processes"]]
            most = max(part["resident_pages_max"] for part in parts)
            counted = {"share_counted": round(most / pages, 4), "pages_out": parts[0]["pages_out"],
                       "pages_in": parts[0]["pages_in"], "major": parts[0]["faults"]["major"]}
            many = len(totals["processes"]) > 1
            handler = "handler" in plan.mode()
            bound_pages = pages * (FORK_SLACK if many and handler else 1) + self.slack_pages
            if most > bound_pages:
                problems.append(("over budget", f"{most:,} pages resident of {pages:,}"))
            overruns = max(part.get("budget_overruns", 0) for part in parts)
            # One of several processes may briefly exceed its share while the run keeps its budget.
            if overruns and not many:
                problems.append(("over budget", f"{overruns} overruns counted"))
            errors = [name for name in ("read_errors", "write_errors", "slots_bad") if parts[0].get(name)]
            if errors and not plan.injects():
                problems.append(("device", f"{', '.join(errors)} without an injected fault"))
        except FileNotFoundError:
            # A killed supervisor writes no statistics.
            if code is not None and killed != "supervisor":
                problems.append(("no statistics", "no file was written"))
        except (ValueError, KeyError) as error:
            problems.append(("no statistics", f"{error!r}"))
        slack = bound * (FORK_SLACK - 1) if "handler" in plan.mode() else 0
        if sampler.bytes_max > bound + slack + self.slack_pages * PAGE_BYTES:
            problems.append(("over budget", f"{sampler.above} of {sampler.samples} samples above the budget, the "
                             f"highest {sampler.bytes_max / PAGE_BYTES:,.1f} pages of {bound // PAGE_BYTES:,}"))
        return counted, problems

    def keep(self, place, record, number):
        """Keeps the evidence of a failure."""
        kept = self.kept / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{number}-{record['program'].replace(':', '-')}"
        kept.mkdir(parents=True)
        for name in ("err", "stats.json", "hung", "out"):
            path = place / name
            if path.exists() and path.stat().st_size <= KEPT_BYTES_MAX:
                shutil.copy(path, kept)
        record["kept"] = str(kept)
        (kept / "record.json").write_text(json.dumps(record, indent=1) + "\n")


def leftovers(store, temporary, work, cut_short):
    """Files left behind. A killed program may leave files of its own; the pager must leave none."""
    found = [path.name for path in store.iterdir()]
    for folder in (temporary, work):
        found += [path.name for path in folder.iterdir() if not cut_short or path.name.startswith("flashvm")]
    return [("left behind", f"files {', '.join(found)}")] if found else []


def flash_size(program, plan):
    """The size of the store, unless the plan gives one."""
    given = any(option.startswith("--flash-size") for option in plan.options)
    return () if given else ("--flash-size", program.flash_size)


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return "?"


def ram_bytes(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1].upper()] if text[-1].upper() in units else int(text)
