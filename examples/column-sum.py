"""Sums columns of a matrix that is several times larger than the budget.

    flashvm run --ram 256M -- python3 examples/column-sum.py

An argument sets the rows (default 65536: 1 GiB as float32 with 4096 columns). A column of a
row-major matrix takes one word of every fourth page: kernel swap reads each page alone, flashvm
sees the stride and reads ahead. Needs numpy. The sums are checked against arithmetic.
"""

import sys
import time

import numpy as np

COLUMNS = 4096
rows = int(sys.argv[1]) if len(sys.argv) > 1 else 65536

start = time.time()
matrix = np.empty((rows, COLUMNS), dtype=np.float32)
matrix[:] = np.arange(COLUMNS, dtype=np.float32)
print("filled %d MiB" % (matrix.nbytes >> 20))
print("fill %.2f s" % (time.time() - start), file=sys.stderr)

for column in range(0, COLUMNS, 1024):
    start = time.time()
    total = float(matrix[:, column].sum(dtype=np.float64))
    print("column %d: sum %.0f" % (column, total))
    print("column %d: %.2f s" % (column, time.time() - start), file=sys.stderr)
    if total != float(column) * rows:
        sys.exit("column-sum.py: expected %.0f" % (float(column) * rows))
