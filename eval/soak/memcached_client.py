"""Starts memcached, fills it, reads it back at random, checks every value. usage: memcached_client.py ITEMS"""

import os
import random
import sys

import server

BATCH = 100
items = int(sys.argv[1])
user = ["-u", "root"] if os.geteuid() == 0 else []
child, link, lines = server.start(["memcached", *user, "-m", "4096", "-M", "-t", "2", "-s", server.SOCKET])

for first in range(0, items, BATCH):
    batch = range(first, min(first + BATCH, items))
    link.sendall(b"".join(b"set k%d 0 0 640\r\n%s\r\n" % (i, server.value_of(i)) for i in batch))
    for i in batch:
        answer = lines.readline()
        if answer != b"STORED\r\n":
            sys.exit(f"item {i}: {answer!r}")

order = random.Random(9)
found = 0
for _ in range(items * 3 // 5 // BATCH):
    batch = [order.randrange(items) for _ in range(BATCH)]
    link.sendall(b"get " + b" ".join(b"k%d" % i for i in batch) + b"\r\n")
    for i in batch:
        head = lines.readline()
        if head != b"VALUE k%d 0 640\r\n" % i:
            sys.exit(f"item {i}: {head!r}")
        if lines.read(642)[:-2] != server.value_of(i):
            print(f"WRONG: item {i}", flush=True)
        found += 1
    if lines.readline() != b"END\r\n":
        sys.exit("no END")

link.close()
child.terminate()
server.stop(child)
print(items, "items stored,", found, "read back")
