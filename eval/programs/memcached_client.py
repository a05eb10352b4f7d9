"""Fills a memcached through its socket, reads everything back, prints counts and a checksum.

usage: memcached_client.py SOCKET ITEMS VALUE_BYTES

Keys are read back twice: in the order of filling, and in a scattered order.
"""

import hashlib
import socket
import sys
import time

BATCH = 100


def value_of(index, length):
    seed = hashlib.md5(b"%d" % index).hexdigest().encode()
    return (seed * (length // len(seed) + 1))[:length]


def connect(path):
    for _ in range(200):
        try:
            link = socket.socket(socket.AF_UNIX)
            link.connect(path)
            return link
        except OSError:
            link.close()
            time.sleep(0.05)
    sys.exit("memcached_client.py: no memcached at %s" % path)


def fill(link, lines, items, length):
    for first in range(0, items, BATCH):
        batch = range(first, min(first + BATCH, items))
        link.sendall(b"".join(b"set k%d 0 0 %d\r\n%s\r\n" % (i, length, value_of(i, length)) for i in batch))
        for i in batch:
            answer = lines.readline()
            if answer != b"STORED\r\n":
                sys.exit("memcached_client.py: item %d: %r" % (i, answer))


def read_back(link, lines, order, length):
    digest, found = hashlib.md5(), 0
    for first in range(0, len(order), BATCH):
        batch = order[first : first + BATCH]
        link.sendall(b"get " + b" ".join(b"k%d" % i for i in batch) + b"\r\n")
        for i in batch:
            head = lines.readline()
            if head != b"VALUE k%d 0 %d\r\n" % (i, length):
                sys.exit("memcached_client.py: item %d: %r" % (i, head))
            value = lines.read(length + 2)[:-2]
            if value != value_of(i, length):
                sys.exit("memcached_client.py: item %d has a wrong value" % i)
            digest.update(value)
            found += 1
        if lines.readline() != b"END\r\n":
            sys.exit("memcached_client.py: no END")
    return found, digest.hexdigest()


def main():
    path, items, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    link = connect(path)
    lines = link.makefile("rb", buffering=1 << 20)
    fill(link, lines, items, length)
    print("in order", *read_back(link, lines, range(items), length))
    step = 7919
    while items % step == 0:
        step += 2
    jumping = [i * step % items for i in range(0, items, 4)]
    print("jumping", *read_back(link, lines, jumping, length))


main()
