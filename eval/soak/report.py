"""Results on disk, one JSON line a run, and the tables made of them."""

import json
import shlex
import statistics
from collections import defaultdict

import programs

PROBLEMS = ("ended", "wrong output", "over budget", "left behind", "hung")


class State:
    """The results of one build, in a file that may hold several builds."""

    def __init__(self, path, build):
        self.path, self.build = path, build
        self.records = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue  # the last line of an interrupted campaign
                if record.get("build") == build:
                    self.records.append(record)

    def add(self, record):
        record["number"] = len(self.records) + 1
        record["build"] = self.build
        self.records.append(record)
        with open(self.path, "a") as file:
            file.write(json.dumps(record) + "\n")


def order(key):
    program, size, mode = key
    base = program.partition(":")[0]
    return list(programs.ALL).index(base) if base in programs.ALL else 99, programs.SIZES.index(size), mode


def share(records, key):
    found = [r[key] for r in records if r.get(key) is not None]
    return f"{max(found):.1%}" if found else "-"


def report(records, build, skipped=()):
    """The report in Markdown, and whether all runs passed."""
    failed = [r for r in records if r["problems"]]
    lines = [f"# Soak of build {build}", "",
             f"{len(records)} runs, {sum(r['seconds'] for r in records) / 3600:.2f} hours, {len(failed)} failed.", ""]
    groups, kills = defaultdict(list), defaultdict(list)
    for record in records:
        if record["plan"]["kill"]:
            kills[record["mode"], record["plan"]["kill"].partition("@")[0]].append(record)
        groups[record["program"].partition(":")[0], record["size"], record["mode"]].append(record)
    columns = ["program", "size", "mode", "runs", "ended by flashvm", "wrong output", "over budget", "left behind",
               "hung", "other", "RAM counted", "RAM sampled", "samples", "median s"]
    lines += ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    for key in sorted(groups, key=order):
        group = groups[key]
        counts = [sum(any(kind == p for kind, _ in r["problems"]) for r in group) for p in PROBLEMS]
        other = sum(any(kind not in PROBLEMS for kind, _ in r["problems"]) for r in group)
        seconds = statistics.median(r["seconds"] for r in group)
        cells = [*key, len(group), *counts, other, share(group, "share_counted"), share(group, "share_sampled"),
                 sum(r["samples"] for r in group), f"{seconds:.1f}"]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    lines += ["", "RAM: the most of any run, as a share of its budget. Counted: by flashvm, with its read buffers. "
              "Sampled: by the kernel, without them, while all processes of the run are frozen."]
    if kills:
        lines += ["", "| killed | mode | runs | killed in time | left behind | hung | longest until all had gone, s |",
                  "| --- | --- | --- | --- | --- | --- | --- |"]
        for (mode, who), group in sorted(kills.items()):
            left, hung = (sum(any(kind == p for kind, _ in r["problems"]) for r in group) for p in ("left behind", "hung"))
            hit = [r for r in group if r["killed"]]
            longest = max((r["gone_s"] for r in hit), default=0)
            lines.append(f"| {who} | {mode} | {len(group)} | {len(hit)} | {left} | {hung} | {longest:.2f} |")
    if failed:
        lines += ["", "## Failures", ""]
        for record in failed:
            lines.append(f"- {record['number']}: {record['program']}, {record['size']}, {record['mode']}, seed "
                         f"{record['plan']['seed']}: " + "; ".join(f"{kind}: {what}" for kind, what in record["problems"]))
            lines.append(f"  `{shlex.join(record['replay'])}`")
            if record.get("kept"):
                lines.append(f"  kept in {record['kept']}")
    if skipped:
        lines += ["", *(f"SKIPPED: {what}" for what in skipped)]
    return "\n".join(lines), not failed
