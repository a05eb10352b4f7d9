"""Column sums, a row-major sum and random rows of a float32 matrix of 4096 columns.

usage: colsum.py ROWS      (65536 rows are 1 GiB)

A column of a row-major matrix touches one word of every fourth page: the access pattern that
paging systems serve worst.
"""

import sys
import time

import numpy as np

COLUMNS = 4096
rows = int(sys.argv[1])

start = time.time()
matrix = np.ones((rows, COLUMNS), dtype=np.float32)
print("fill %.2f s %d MB" % (time.time() - start, matrix.nbytes >> 20))

start = time.time()
total = sum(float(matrix[:, column].sum()) for column in range(0, COLUMNS, 1024))
print("4 column sums %.2f s" % (time.time() - start), total)

start = time.time()
total = matrix.sum()
print("row-major sum %.2f s" % (time.time() - start), total)

picks = np.random.default_rng(1).integers(0, rows, 100000)
start = time.time()
total = matrix[picks, 7].sum()
print("100k random rows %.2f s" % (time.time() - start), total)
