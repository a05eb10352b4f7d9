"""The plans: modes, policies, prefetchers and presets that the command lists, and random choices from them."""

import random
import re
import subprocess

import programs
from run import Plan

MODES = {
    "inline": ("--fault", "inline"),
    "handler": ("--fault", "handler"),
    "small": ("--fault", "inline", "--granularity", "512"),
    "no-move": ("--fault", "inline", "--no-move"),
    "no-markers": ("--fault", "protect", "--no-markers"),
    "no-uring": ("--fault", "inline", "--no-uring"),
    "handler-no-uring": ("--fault", "handler", "--no-uring"),
    "bare": ("--fault", "inline", "--no-move", "--no-uring"),
}
# Used if the command's help lists them and a run accepts them.
EXTRAS = (
    "--zero-sharing=off", "--sampling=adaptive:2", "--sampling=uniform:4", "--preclean=1", "--preclean=64",
    "--cluster=8K", "--cluster=4M", "--readahead=1", "--readahead=64", "--stride=1", "--stride=16",
    "--congestion-timeout=1ms", "--discard=native", "--discard=merged:1M", "--discard=dummy",
    "--write-limit=500G/day", "--encrypt", "--compress=off", "--compress=lz4", "--compress=zstd",
)
# Factors of a program's tight budget.
BUDGETS = (0.5, 0.75, 1, 1, 1, 1.5, 2, 8)
RAM_MIB_MIN = 4
# Programs that may be killed: their children die with them.
KILLED = ("sqlite", "redis", "memcached", "dictionary", "node", "gcc", "sort", "bfs")


class Registry:
    """The options of this build, as far as this machine allows them."""

    def __init__(self, flashvm, store):
        self.flashvm, self.store = flashvm, store
        self.skipped = []
        self.help = self.output(["run", "--help"])[1]
        self.modes = {}
        for name, options in MODES.items():
            code, said = self.output(["run", "--quiet", "--ram", "8M", "--flash", store, *options, "--", "true"])
            if code == 0:
                self.modes[name] = options
            else:
                self.skipped.append(f"mode {name}: {said.strip().splitlines()[-1] if said.strip() else code}")
        self.policies = self.known("--policy")
        self.prefetchers = self.known("--prefetcher")
        self.presets = self.known("--preset")
        self.extras = [o for o in EXTRAS if o.partition("=")[0] in self.help and self.runs(o)]

    def output(self, words):
        done = subprocess.run([str(self.flashvm), *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        return done.returncode, done.stdout

    def runs(self, *options):
        return self.output(["run", "--quiet", "--ram", "8M", "--flash", self.store, *options, "--", "true"])[0] == 0

    def known(self, option):
        """The values that the command lists for an unknown one, as far as a live run accepts them."""
        said = self.output(["run", option, "?", "--", "true"])[1]
        found = re.search(r"known are (.+)", said)
        if not found:
            raise SystemExit(f"soak: {option} does not say what it knows: {said.strip()}")
        return [name for name in re.split(r",\s*", found[1].strip()) if self.runs(option, name)]


def ram(program, size, factor=1):
    base = programs.ALL[program.partition(":")[0]].ram_mib[size]
    return f"{max(RAM_MIB_MIN, round(base * factor))}M"


def parts(shelf):
    """The parts of the torture program."""
    try:
        return shelf.program("torture", "tiny").parts()
    except programs.Missing:
        return []


def inject(draw, seed, may_lose):
    if may_lose and draw.random() < 0.6:
        what = draw.choice(("read={0}", "flip={0}", "read={0},flip={0}", "read={0},flip={0},write={0}"))
        return "--inject=" + what.format(draw.choice((5, 50, 1000, 50_000))) + f",seed={seed}"
    return f"--inject=write={draw.choice((100, 2000, 50_000))},seed={seed}"


def drawn(seed, registry, names, modes, sizes, torture_parts):
    """A random plan. The same seed, build and arguments give the same plan."""
    draw = random.Random(seed)
    name, size = draw.choice(names), draw.choice(sizes)
    base = name.partition(":")[0]
    mode = draw.choice(modes)
    options = list(registry.modes[mode])
    if name == "torture" and torture_parts:
        name = f"torture:{draw.choice(torture_parts)}"
    factors = [f for f in BUDGETS if size == "tiny" or f >= 0.75]
    budget = ram(name, size, draw.choice(factors))
    if draw.random() < 0.5:
        options.append(f"--policy={draw.choice(registry.policies)}")
    if draw.random() < 0.4:
        options.append(f"--prefetcher={draw.choice(registry.prefetchers)}")
    if draw.random() < 0.25:
        options.append(f"--preset={draw.choice(registry.presets)}")
    if draw.random() < 0.25 and registry.extras:
        options.append(draw.choice(registry.extras))
    if base == "sigbus":
        options.append(f"--inject=read=400000,flip=400000,write=1000,seed={seed}")
    # Not enomem, which fills the store: after losing slots it could not hold what it has promised.
    elif base != "enomem" and draw.random() < 0.2:
        options.append(inject(draw, seed, programs.ALL[base].same_output))
    kill = ""
    if draw.random() < 0.08:
        who = draw.choice(("supervisor", "program", "any")) if base in KILLED else "supervisor"
        kill = f"{who}@{draw.uniform(0, {'tiny': 1, 'small': 4, 'full': 30}[size]):.2f}"
    return Plan(name, size, budget, tuple(options), seed, kill)


def killing(seed, registry, names, modes):
    """A short run that is killed at a random moment."""
    draw = random.Random(seed)
    name = draw.choice([n for n in names if n in KILLED] or ["dictionary"])
    options = list(registry.modes[draw.choice(modes)])
    if draw.random() < 0.3:
        options.append(f"--policy={draw.choice(registry.policies)}")
    who = draw.choice(("supervisor", "supervisor", "program", "any"))
    return Plan(name, "tiny", ram(name, "tiny", draw.choice((0.5, 1, 1))), tuple(options), seed,
                f"{who}@{draw.uniform(0, 0.6):.3f}")


def short(registry, names, torture_parts):
    """Each mode with programs in turn, at the smallest size; each program at least once."""
    plans, modes = [], list(registry.modes)
    names = [f"torture:{part}" for part in torture_parts if part != "table"] + [n for n in names if n != "torture"]
    for i in range(max(len(names), len(modes))):
        name, mode = names[i % len(names)], modes[i % len(modes)]
        seed = 100 + i
        options = registry.modes[mode]
        if i % 3 == 1:
            options += (f"--policy={registry.policies[i % len(registry.policies)]}",)
        if name == "sigbus":
            options += (f"--inject=read=400000,flip=400000,write=1000,seed={seed}",)
        plans.append(Plan(name, "tiny", ram(name, "tiny"), tuple(options), seed))
    return plans
