"""What the clients of servers share: a server as a child that dies with its client, and a socket to it."""

import os
import shutil
import socket
import subprocess
import sys
import time

SOCKET = "socket"
START_S_MAX = 120


def value_of(index):
    """640 bytes that follow from the key: a wrong page cannot look right."""
    word = b"%016x" % (index * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    return word * 40


def start(words):
    """Starts a server that listens on SOCKET in the working folder, and connects to it."""
    # A killed client takes its server with it, so any remaining process was left behind by the pager. The kernel sends
    # no signal if the client died before setpriv asked for it, so the shell checks its parent.
    tied = []
    if setpriv := shutil.which("setpriv"):
        tied = [setpriv, "--pdeathsig", "KILL", "/bin/sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())]
    server = subprocess.Popen(tied + words, stdout=sys.stderr, stdin=subprocess.DEVNULL)
    end = time.monotonic() + START_S_MAX
    while time.monotonic() < end:
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode} at its start")
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(SOCKET)
            return server, link, link.makefile("rb", buffering=1 << 20)
        except OSError:
            link.close()
            time.sleep(0.01)
    sys.exit("the server does not listen")


def stop(server):
    """Waits for the server. Exits with 1 unless it ended well."""
    code = server.wait()
    if os.path.exists(SOCKET):
        os.unlink(SOCKET)
    if code != 0:
        sys.exit(f"the server ended with {code}")
