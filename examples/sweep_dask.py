"""Policies by sizes by traces on a Dask cluster: a task for each, results as they come.

    pip install ./python dask distributed
    python examples/sweep_dask.py crates/flashvm-sim/tests/data/gcc.trace.gz

Without an address in DASK_SCHEDULER_ADDRESS a cluster of this machine is started. Workers may die: their tasks run again elsewhere.
"""

import itertools
import os
import sys

from distributed import Client, LocalCluster, as_completed

from flashvm import sim

POLICIES = ["lru", "clock", "s3-fifo", "car", "craw"]
FRAMES = ["5%", "10%", "20%", "40%"]


def sweep(client, traces, policies=POLICIES, frames=FRAMES):
    """Yields the result of each simulation."""
    tasks = list(itertools.product(traces, policies, frames))
    # Results are plain dicts; `pure` tasks with the same arguments would run once.
    futures = client.map(sim.simulate, *map(list, zip(*tasks)), pure=True)
    for _, result in as_completed(futures, with_results=True):
        yield result


def main(traces):
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    cluster = address or LocalCluster(threads_per_worker=1, dashboard_address=None)
    with Client(cluster) as client:
        for result in sweep(client, traces):
            print(f"{result['trace']}  {result['policy']:<10} {result['frames']:>8} frames  {result['misses']:>10} misses")
    if not address:
        cluster.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: sweep_dask.py TRACE...")
    main(sys.argv[1:])
