#!/usr/bin/env python3
"""Memory on another network: flashvm, a bare client, nbdcopy, and kernel swap over the same link, in turn.

usage (as root): eval/remote.py [--rounds 5] [--delay 0] [--data 256] [--ram 64] [--json FILE]

nbdkit's memory plugin runs in a network namespace of its own, reached over a pair of virtual interfaces; `--delay` adds
milliseconds to each of its reads and writes (its delay filter). Kernel swap has a loop device over nbdfuse, as this needs
no NBD in the kernel, and a memory cgroup whose limit is the RAM.

A touch is a random load from DATA MiB, of which RAM are in RAM; a page-in is a touch / (1 - RAM / DATA).

examples:
  sudo eval/remote.py
  sudo eval/remote.py --delay 1 --data 64 --ram 16 --touches 4000 --json remote.json
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import peers

ROOT = Path(__file__).resolve().parent.parent
NEAR, FAR, PORT = "198.18.77.1", "198.18.77.2", 10809
MIB = 1 << 20


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, text=True, **options)


class Far:
    """The server and the link to it, until it is closed."""

    def __init__(self, export_mib, delay_ms):
        self.name, self.server = f"fvremote{os.getpid()}", None
        run("ip", "netns", "add", self.name)
        near, far = f"fvr{os.getpid()}n", f"fvr{os.getpid()}f"
        run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.name)
        run("ip", "addr", "add", f"{NEAR}/30", "dev", near)
        run("ip", "link", "set", near, "up")
        run("ip", "-n", self.name, "addr", "add", f"{FAR}/30", "dev", far)
        run("ip", "-n", self.name, "link", "set", far, "up")
        self.words = ["ip", "netns", "exec", self.name, "nbdkit", "-f", "--exit-with-parent", "-p", str(PORT)]
        delays = [f"rdelay={delay_ms}ms", f"wdelay={delay_ms}ms"] if delay_ms else []
        self.words += ["--filter=delay"] * bool(delays) + ["memory", f"{export_mib}M", *delays]
        self.restart()

    def restart(self):
        """A server with an empty export, as flashvm refuses one that holds swap."""
        self.stop()
        self.server = subprocess.Popen(self.words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            if subprocess.run(["nbdinfo", "--size", self.uri()], capture_output=True).returncode == 0:
                return
            time.sleep(0.05)
        sys.exit(f"remote.py: nbdkit does not answer at {self.uri()}")

    def uri(self):
        return f"nbd://{FAR}:{PORT}/"

    def stop(self):
        if self.server:
            self.server.kill()
            self.server.wait()

    def close(self):
        self.stop()
        subprocess.run(["ip", "netns", "del", self.name], check=False)


class Swap:
    """Swap on a loop device over nbdfuse, until it is closed."""

    def __init__(self, uri, folder):
        self.file = Path(folder) / "export"
        self.file.touch()
        self.fuse = subprocess.Popen(["nbdfuse", self.file, uri], stdout=subprocess.DEVNULL)
        size = 0
        while size == 0:
            if self.fuse.poll() is not None:
                sys.exit(f"remote.py: nbdfuse ended with {self.fuse.returncode}")
            time.sleep(0.05)
            size = self.file.stat().st_size
        self.device = run("losetup", "--find", "--show", "--direct-io=on", self.file, capture_output=True).stdout.strip()
        run("mkswap", self.device, stdout=subprocess.DEVNULL)
        run("swapon", "--priority", "32767", self.device)

    def close(self):
        run("swapoff", self.device)
        run("losetup", "--detach", self.device)
        run("umount", self.file)
        self.fuse.wait()


def figures(text):
    """Those of pagebench: us of a touch, MB/s of the sequential pass."""
    touch = re.search(r"^rand .* ([\d.]+) us/op", text, re.M)
    sequential = re.search(r"^seqread .* (\d+) MB/s", text, re.M)
    if "bad 0" not in text or not touch or not sequential:
        sys.exit(f"remote.py: pagebench failed:\n{text}")
    return float(touch[1]), float(sequential[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delay", type=int, default=0, help="milliseconds")
    parser.add_argument("--data", type=int, default=256, help="MiB")
    parser.add_argument("--ram", type=int, default=64, help="MiB")
    parser.add_argument("--touches", type=int, default=30000, help="random loads of one thread")
    parser.add_argument("--flashvm", default=ROOT / "target/release/flashvm")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("remote.py: network namespaces and swap need root: run it with sudo")
    if not 0 < arguments.ram < arguments.data:
        sys.exit(f"remote.py: --ram {arguments.ram} is not below --data {arguments.data}: name less RAM than data")

    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("pagebench", "nbdread"):
            run("cc", "-O2", "-o", f"{folder}/{name}", ROOT / f"eval/{name}.c", "-lpthread")
        bench = [f"{folder}/pagebench", str(arguments.data), "0", str(arguments.touches)]
        far = Far(2 * arguments.data, arguments.delay)
        try:
            for _ in range(arguments.rounds):
                rounds.append(one_round(arguments, far, folder, bench))
                print(json.dumps(rounds[-1]), file=sys.stderr)
        finally:
            far.close()
    if arguments.json:
        arguments.json.write_text(json.dumps(rounds, indent=1))
    print(table(arguments, rounds))


def one_round(arguments, far, folder, bench):
    result = {}
    far.restart()
    read = run(f"{folder}/nbdread", arguments.data, min(arguments.touches, 10000), f"{FAR}:{PORT}", capture_output=True)
    result["bare_us"] = float(re.search(r"mean ([\d.]+) us", read.stdout)[1])
    words = [arguments.flashvm, "run", "--ram", f"{arguments.ram}M", "--compress", "off", "--flash", far.uri(), "--", *bench]
    result["flashvm_us"], result["flashvm_mb_s"] = figures(run(*words, capture_output=True).stdout)

    # Pages of flashvm's are left in the export: nothing that nbdcopy could skip as a hole.
    begun = time.monotonic()
    run("nbdcopy", "--request-size=262144", far.uri(), "null:")
    result["nbdcopy_mb_s"] = round(arguments.data * MIB / 1e6 / (time.monotonic() - begun))

    group, swap = peers.Cgroup("flashvm-remote"), Swap(far.uri(), folder)
    try:
        group.limit(arguments.ram * MIB)
        group.spare()
        text = run(*bench, capture_output=True, preexec_fn=group.join).stdout
        result["swap_us"], result["swap_mb_s"] = figures(text)
    finally:
        swap.close()
        group.remove()
    return result


def table(arguments, rounds):
    middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    share = 1 - arguments.ram / arguments.data
    page_in = {name: middle[f"{name}_us"] / share for name in ("flashvm", "swap")}
    lines = [
        "| | a bare read | a page-in | sequential read |",
        "| --- | ---: | ---: | ---: |",
        f"| a polling client, nbdcopy | {middle['bare_us']:.0f} us | | {middle['nbdcopy_mb_s']:.0f} MB/s |",
        f"| flashvm | | {page_in['flashvm']:.0f} us | {middle['flashvm_mb_s']:.0f} MB/s |",
        f"| kernel swap, loop over nbdfuse | | {page_in['swap']:.0f} us | {middle['swap_mb_s']:.0f} MB/s |",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
