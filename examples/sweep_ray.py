"""Policies by sizes by traces on a Ray cluster: a task for each, results as they come.

    pip install ./python ray
    python examples/sweep_ray.py crates/flashvm-sim/tests/data/gcc.trace.gz

With RAY_ADDRESS in the environment it runs on that cluster. Workers may die: their tasks run again elsewhere.
"""

import itertools
import sys

import ray

from flashvm import sim

POLICIES = ["lru", "clock", "s3-fifo", "car", "craw"]
FRAMES = ["5%", "10%", "20%", "40%"]


def sweep(traces, policies=POLICIES, frames=FRAMES):
    """Yields the result of each simulation."""
    simulate = ray.remote(max_retries=5)(sim.simulate)
    left = [simulate.remote(*task) for task in itertools.product(traces, policies, frames)]
    while left:
        done, left = ray.wait(left)
        yield from ray.get(done)


def main(traces):
    ray.init(include_dashboard=False)
    for result in sweep(traces):
        print(f"{result['trace']}  {result['policy']:<10} {result['frames']:>8} frames  {result['misses']:>10} misses")
    ray.shutdown()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: sweep_ray.py TRACE...")
    main(sys.argv[1:])
