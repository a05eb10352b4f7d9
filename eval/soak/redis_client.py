"""Starts redis, fills it, changes it while it saves itself in the background, checks every value and that it
saved. usage: redis_client.py ITEMS
"""

import hashlib
import os
import random
import sys
import time

import server

BATCH = 500
SAVE_S_MAX = 600
items = int(sys.argv[1])
# If an injected fault loses a page, redis crashes, and would test its memory by writing to all of it, the pager's too.
child, link, lines = server.start(
    ["redis-server", "--port", "0", "--unixsocket", server.SOCKET, "--save", "", "--appendonly", "no",
     "--loglevel", "warning", "--crash-memcheck-enabled", "no"])


def request(*words):
    encoded = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in encoded)


def reply():
    line = lines.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"$":
        length = int(rest)
        return None if length < 0 else lines.read(length + 2)[:-2]
    if kind == b"*":
        return [reply() for _ in range(int(rest))]
    if kind in (b"+", b":"):
        return rest
    sys.exit(f"redis answers {line!r}")


def ask(*words):
    link.sendall(request(*words))
    return reply()


def batches():
    return (range(first, min(first + BATCH, items)) for first in range(0, items, BATCH))


for batch in batches():
    link.sendall(b"".join(request("SET", f"key:{i}", server.value_of(i)) for i in batch))
    for _ in batch:
        reply()

ask("BGSAVE")
order, changed = random.Random(5), {}
for round_ in range(40):
    keys = [order.randrange(items) for _ in range(max(items // 800, 1))]
    changed.update((key, round_) for key in keys)
    link.sendall(b"".join(request("SET", f"key:{k}", b"changed %d " % round_ + server.value_of(k)) for k in keys))
    for _ in keys:
        reply()

digest = hashlib.sha256()
for batch in batches():
    for i, value in zip(batch, ask("MGET", *[f"key:{i}" for i in batch])):
        wanted = (b"changed %d " % changed[i] if i in changed else b"") + server.value_of(i)
        if value != wanted:
            print(f"WRONG: key {i}", flush=True)
        digest.update(value or b"none")

end = time.monotonic() + SAVE_S_MAX
while b"rdb_bgsave_in_progress:1" in (state := ask("INFO", "persistence")):
    if time.monotonic() > end:
        sys.exit("redis does not end its save")
    time.sleep(0.02)
if b"rdb_last_bgsave_status:ok" not in state:
    sys.exit("redis could not save in the background")
saved = os.path.getsize("dump.rdb")
os.unlink("dump.rdb")
link.sendall(request("SHUTDOWN", "NOSAVE"))
server.stop(child)
print(items, "items,", len(changed), "changed,", saved > items * 16, "saved,", digest.hexdigest())
