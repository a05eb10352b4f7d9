#!/usr/bin/python3
"""Kernel swap and flashvm side by side: same disk, same RAM, alternating runs, medians.

usage (as root): eval/versus-swap.py [--pairs 5] [--json FILE] [--csv FILE] [--only kernel|flashvm]
Exit status: 0 every target met, 3 one was missed, 1 something went wrong.

Kernel: a swap file beside the flash store, and a memory cgroup (v1 or v2) whose limit is the RAM.
FlashVM: `flashvm run --ram` with the same figure, in a cgroup without a limit. The peak of both
cgroups is reported: it includes flashvm's memory outside the budget (its code, page table, the
program's unmanaged memory). The OOM killer of a version 1 cgroup ends programs although swap is free: here
they wait instead, and get up to 1 MiB more. With --headroom MIB flashvm's cgroup is limited to RAM + MIB.
Sizes follow the targets: pagebench with 2 GiB in 512 MiB at 10 % and at 90 % writes, column
sums over 1 GiB in 256 MiB, ImageMagick (475 MB) in 256 MiB. The last workloads fit the RAM: the
kernel's side is the program alone. The swap file and the cgroups are always removed.
"""

import argparse
import atexit
import csv
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import imagemagick
from peers import Cgroup, Refused, SwapFile

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20

# metric -> (unit, higher is better, least ratio flashvm/kernel in the metric's good direction)
METRICS = {
    "fill": ("MB/s", True, 1.0),
    "random": ("us/op", False, 1.5),
    "random, 4 threads": ("us/op", False, 1.5),
    "sequential": ("MB/s", True, 5.0),
    "stride5": ("pages/s", True, 5.0),
    "colsum_fill": ("s", False, None),
    "column_sums": ("s", False, 8.0),
    "row_sum": ("s", False, None),
    "random_rows": ("s", False, None),
    "resize": ("s", False, 5.0),
    "fits": ("s", False, 1 / 1.05),
    "object access": ("us", False, None),
    "object sort": ("s", False, None),
    "graph search": ("s", False, None),
    "bloom insertion": ("us", False, None),
}

PATTERNS = {
    "fill": r"^fill [\d.]+s ([\d.]+) MB/s",
    "random": r"^rand .* ([\d.]+) us/op",
    "random, 4 threads": r"^rand4 .* ([\d.]+) us/op",
    "sequential": r"^seqread [\d.]+s ([\d.]+) MB/s",
    "stride5": r"^stride5 [\d.]+s ([\d.]+) pages/s",
    "colsum_fill": r"^fill ([\d.]+) s",
    "column_sums": r"^4 column sums ([\d.]+) s",
    "row_sum": r"^row-major sum ([\d.]+) s",
    "random_rows": r"^100k random rows ([\d.]+) s",
    "object access": r"^access ([\d.]+) us",
    "object sort": r"^sort ([\d.]+) s",
    "graph search": r"^search ([\d.]+) s",
    "bloom insertion": r"^insertion ([\d.]+) us",
}


def fail(message):
    sys.exit(f"versus-swap: {message}")


def run(command, cgroup, timeout_s, env=None):
    cgroup.reset_peak()
    start = time.monotonic()
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=timeout_s,
        preexec_fn=cgroup.join,
        env=env,
        check=False,
    )
    wall = time.monotonic() - start
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout, wall, cgroup.peak_mib()


def parse(text, names, wall):
    found = {}
    for name in names:
        if name not in PATTERNS:  # the time of the whole run
            found[name] = wall
            continue
        match = re.search(PATTERNS[name], text, re.M)
        if not match:
            fail(f"no line for {name} in:\n{text}")
        found[name] = float(match.group(1))
    return found


def python_with_numpy():
    for candidate in ("/usr/bin/python3", sys.executable, shutil.which("python3")):
        if candidate and subprocess.run(
            [candidate, "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False
        ).returncode == 0:
            return candidate
    fail("no python3 with numpy; install python3-numpy")


def resize(args, folder):
    convert = imagemagick.convert()
    if not convert:
        fail("no ImageMagick in /usr/bin; install imagemagick")
    os.environ.update(imagemagick.environment(folder))
    picture = folder / "in.ppm"
    imagemagick.picture(convert, args.picture, picture, {})
    return [convert, picture, "-resize", "500%", "ppm:/dev/null"]


def workloads(args, folder):
    bench = folder / "pagebench"
    subprocess.run(["cc", "-O2", "-Wall", "-pthread", "-o", bench, ROOT / "eval/pagebench.c"], check=True)
    page_parts = ["fill", "random", "random, 4 threads", "sequential", "stride5"]
    for write_percent in (10, 90):
        yield (
            f"pagebench {write_percent}% writes",
            [bench, args.data, write_percent, args.ops],
            args.ram,
            page_parts,
        )
    yield (
        "numpy column sums",
        [python_with_numpy(), ROOT / "eval/colsum.py", args.rows],
        args.colsum_ram,
        ["colsum_fill", "column_sums", "row_sum", "random_rows"],
    )
    convert = resize(args, folder)
    yield "ImageMagick", convert, args.picture_ram, ["resize"]
    yield "ImageMagick", convert, 2048, ["fits"]
    # The programs of the Chameleon paper: --small measures them alone, with --granularity 512.
    objects = [Path(args.flashvm).parent / "flashvm-workload"]
    for reads in (90, 10):
        words = objects + ["random", 196608, reads, 30000]
        yield f"0.5 KiB objects, {reads}:{100 - reads}", words, 12, ["object access"]
    yield "0.5 KiB objects, hot set", objects + ["hot", 196608, 12288, 100000], 24, ["object access"]
    for ram in (16, 6):
        yield "0.5 KiB objects, quicksort", objects + ["sort", 196608, 12288], ram, ["object sort"]
    yield "0.5 KiB objects, depth-first search", objects + ["graph", 16, 8, 20], 12, ["graph search"]
    yield "0.5 KiB objects, bloom filter", objects + ["bloom", 131072, 5000], 12, ["bloom insertion"]
    yield f"pagebench {args.ram} MiB", [bench, args.ram, 10, 50 * args.ops], 4 * args.ram, ["fits"]


def table(results, args):
    print(f"\n{'workload':36} {'part':18} {'unit':8} {'kernel':>10} {'flashvm':>10} {'ratio':>7} {'target':>7}")
    rows = []
    for (name, ram), sides in results.items():
        workload = f"{name}, {ram} MiB RAM"
        for part in next(iter(sides.values()))[0]["parts"]:
            unit, higher, target = METRICS[part]
            median = {
                side: statistics.median(sample["parts"][part] for sample in samples)
                for side, samples in sides.items()
            }
            ratio = None
            if len(median) == 2 and all(median.values()):
                ratio = median["flashvm"] / median["kernel"]
                ratio = ratio if higher else 1 / ratio
            met = None if ratio is None or target is None else ratio >= target
            rows.append(
                {"workload": name, "ram_mib": ram, "part": part, "unit": unit, "medians": median,
                 "speedup": ratio, "target": target, "met": met}
            )
            cell = [f"{median[s]:.2f}" if s in median else "-" for s in ("kernel", "flashvm")]
            print(
                f"{workload:36} {part:18} {unit:8} {cell[0]:>10} {cell[1]:>10} "
                f"{'-' if ratio is None else format(ratio, '.2f'):>7} "
                f"{'-' if target is None else format(target, '.2f'):>7}"
                f"{'' if met is None else '  met' if met else '  MISSED'}"
            )
        for side, samples in sides.items():
            peaks = [s["peak_mib"] for s in samples if s["peak_mib"] is not None]
            if peaks:
                print(f"{workload:36} peak RAM of the cgroup, {side}: {max(peaks):.0f} MiB")
    print("ratio: how many times faster flashvm is (above 1 is faster), medians of "
          f"{args.pairs} alternating runs")
    return rows


def digits(value):
    """Rounded to three digits, or to a whole number if it has more; without zeros at the end."""
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["workload", "RAM MiB", "part", "unit", "kernel swap", "flashvm", "times faster"])
        for row in rows:
            sides = [row["medians"].get(side) for side in ("kernel", "flashvm")]
            figures = [digits(value) for value in (*sides, row["speedup"])]
            writer.writerow([row["workload"], row["ram_mib"], row["part"], row["unit"], *figures])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--data", type=int, default=2048, help="MiB of pagebench")
    parser.add_argument("--ram", type=int, default=512, help="MiB of RAM for pagebench")
    parser.add_argument("--ops", type=int, default=100000, help="random accesses of pagebench")
    parser.add_argument("--rows", type=int, default=65536, help="rows of the matrix, 16 KiB each")
    parser.add_argument("--colsum-ram", type=int, default=256, help="MiB of RAM for column sums")
    parser.add_argument("--picture", default="1600x1200", help="size of ImageMagick's picture")
    parser.add_argument("--picture-ram", type=int, default=256, help="MiB of RAM for ImageMagick")
    parser.add_argument("--short", action="store_true", help="small sizes, two pairs")
    parser.add_argument("--small", action="store_true", help="0.5 KiB objects only, with --granularity 512")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="folder of swap file and store")
    parser.add_argument("--flashvm", default=ROOT / "target/release/flashvm")
    parser.add_argument("--flashvm-option", action="append", default=[], help="another word for flashvm run")
    parser.add_argument("--headroom", type=int, help="limit flashvm's cgroup to RAM and these MiB")
    parser.add_argument("--only", choices=["kernel", "flashvm"])
    parser.add_argument("--workload", help="only workloads whose name contains this")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--csv", type=Path, help="the medians as a table")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one run")
    args = parser.parse_args()
    if args.short:
        args.pairs, args.data, args.ram, args.ops = 2, 256, 64, 20000
        args.rows, args.colsum_ram = 24576, 96
        args.picture, args.picture_ram = "800x600", 96
    if args.small:
        args.workload = args.workload or "0.5 KiB objects"
        args.flashvm_option += ["--granularity", "512", "--flash-size", "1G"]
    if os.geteuid() != 0:
        fail("needs root for swapon and cgroups; run it with sudo")
    if args.only != "kernel" and not Path(args.flashvm).exists():
        fail(f"{args.flashvm} does not exist; run cargo build --release")
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, lambda number, _: sys.exit(128 + number))

    sides = [args.only] if args.only else ["kernel", "flashvm"]
    folder = Path(tempfile.mkdtemp(prefix="versus-swap-", dir=args.folder))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        kernel_group, flash_group = Cgroup("versus-swap-kernel"), Cgroup("versus-swap-flashvm")
    except Refused as reason:
        fail(reason)
    if "kernel" in sides:
        SwapFile(args.folder, 2 * max(args.data, args.rows * 16 // 1024))

    results = {}
    for workload, command, ram, parts in workloads(args, folder):
        if args.workload and args.workload not in workload:
            continue
        key = (workload, ram)
        results[key] = {side: [] for side in sides}
        for pair in range(args.pairs):
            for side in sides:
                if side == "kernel":
                    kernel_group.limit(ram * MIB)
                    kernel_group.spare()
                    text, wall, peak = run(command, kernel_group, args.timeout)
                    kernel_group.end_sparing()
                else:
                    if args.headroom is not None:
                        flash_group.limit((ram + args.headroom) * MIB)
                    text, wall, peak = run(
                        [args.flashvm, "run", "--ram", f"{ram}M", "--flash", args.folder,
                         *args.flashvm_option, "--", *command],
                        flash_group, args.timeout)
                sample = {"parts": parse(text, parts, wall), "wall_s": wall, "peak_mib": peak}
                results[key][side].append(sample)
                figures = "  ".join(f"{k} {v:g}" for k, v in sample["parts"].items())
                print(f"{workload}, pair {pair + 1}, {side}: {figures}  ({wall:.1f} s)", flush=True)
    rows = table(results, args)
    if args.json:
        config = {k: str(v) for k, v in vars(args).items()}
        args.json.write_text(json.dumps({"config": config, "table": rows, "samples": {f"{name}, {ram} MiB": sides for (name, ram), sides in results.items()}}, indent=1) + "\n")
    if args.csv:
        write_csv(args.csv, rows)
    if any(row["met"] is False for row in rows):
        sys.exit(3)


main()
