"""Builds a dictionary of many entries, reads it back in another order, prints a checksum.

usage: dictionary.py ENTRIES
"""

import sys
import zlib

entries = int(sys.argv[1])
table = {"key %d" % i: "value %d of many" % (i * 7919) for i in range(entries)}

total = 0
for i in range(entries - 1, -1, -3):
    value = table["key %d" % i]
    if value != "value %d of many" % (i * 7919):
        sys.exit("dictionary.py: wrong value at %d: %r" % (i, value))
    total = zlib.crc32(value.encode(), total)
for i in range(0, entries, 2):
    del table["key %d" % i]
for key, value in table.items():
    total = zlib.crc32(value.encode(), total)
print(len(table), total)
