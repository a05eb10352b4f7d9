"""Sweeps on existing engines: a worker is killed in the middle, and all results come."""

import os
import signal
import subprocess
import sys
import time

import numpy
import pytest
from conftest import GCC, ROOT

from flashvm import sim

sys.path.insert(0, str(ROOT / "examples"))

POLICIES = ["lru", "clock", "s3-fifo", "car"]
FRAMES = ["5%", "10%", "20%", "40%"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Traces that take about a second for each pair of policy and size, so that a worker dies at work."""
    folder, chance = tmp_path_factory.mktemp("traces"), numpy.random.default_rng(1)
    paths = []
    for name in "one", "two":
        path = folder / f"{name}.csv"
        keys = chance.zipf(1.2, 400_000) % 50_000
        numpy.savetxt(path, keys, fmt="%d")
        paths.append(str(path))
    return paths


def key(result):
    return result["trace"], result["policy"], result["frames"], result["misses"]


@pytest.fixture(scope="module")
def expected(traces):
    """The same by the package alone."""
    rows = [row for trace in traces for row in sim.sweep(trace, POLICIES, FRAMES)]
    return sorted(map(key, rows))


def test_a_dask_worker_is_killed_and_all_results_come(traces, expected):
    import sweep_dask
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        results = []
        for result in sweep_dask.sweep(client, traces, POLICIES, FRAMES):
            results.append(result)
            if len(results) == 3:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        assert sorted(map(key, results)) == expected


def test_a_ray_worker_is_killed_and_all_results_come(traces, expected):
    import ray
    import sweep_ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    try:

        @ray.remote(max_retries=0)
        def die():
            os.kill(os.getpid(), signal.SIGKILL)

        results = []
        for result in sweep_ray.sweep(traces, POLICIES, FRAMES):
            results.append(result)
            if len(results) == 3:
                kill_a_worker_at_work()
        with pytest.raises(ray.exceptions.WorkerCrashedError):
            ray.get(die.remote())
    finally:
        ray.shutdown()
    assert sorted(map(key, results)) == expected


def kill_a_worker_at_work():
    """Kills a Ray worker that runs a task. Between two tasks, a worker has another name."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        lines = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout.splitlines()
        for line in lines:
            pid, _, name = line.strip().partition(" ")
            if name.strip().startswith("ray::simulate"):
                os.kill(int(pid), signal.SIGKILL)
                return
    raise AssertionError("no worker was at work for a minute")


def test_shards_of_a_sweep_together_are_the_whole(command):
    words = [command, "sim", "--json", "--trace", str(GCC), "--policy", "lru,clock,car", "--frames", "16,32,64,128"]

    def lines(*more):
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=True).stdout
        return [line.split(', "wall_s"')[0].split(',"wall_s"')[0] for line in done.splitlines()]

    parts = [lines("--shard", f"{index}/5") for index in range(1, 6)]
    assert [len(part) for part in parts] == [3, 3, 2, 2, 2]
    assert sorted(sum(parts, [])) == sorted(lines())
    refused = subprocess.run([*words, "--shard", "6/5"], capture_output=True, text=True)
    assert refused.returncode == 2 and "'6/5'" in refused.stderr


def test_a_dask_worker_works_on_more_than_its_ram(tmp_path):
    """Its memory is flashvm's: it has no limit of its own at which Dask would spill, pause or kill it."""
    from distributed import Client

    ready = tmp_path / "scheduler.json"
    scheduler = subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard",
                                  "--scheduler-file", ready], stderr=subprocess.DEVNULL)
    worker = None
    try:
        until = time.monotonic() + 60
        while not ready.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        worker = subprocess.Popen([sys.executable, "-m", "flashvm", "run", "--quiet", "--ram", "160M", "-m",
                                   "distributed.cli.dask_worker", "--scheduler-file", ready, "--nthreads", "1",
                                   "--memory-limit", "0", "--no-nanny", "--no-dashboard"], stderr=subprocess.DEVNULL)
        with Client(scheduler_file=str(ready)) as client:
            client.wait_for_workers(1, timeout=60)
            blocks = [client.submit(numpy.full, 4 << 20, float(i), pure=False) for i in range(10)]
            sums = client.gather([client.submit(numpy.sum, block) for block in blocks])
            assert sums == [float(i * (4 << 20)) for i in range(10)]
            inside = client.submit(lambda: __import__("flashvm").stats(), pure=False).result()
        assert inside["resident_bytes_max"] <= inside["budget_bytes"] == 160 << 20
        assert inside["flash_bytes"] + inside["pool_bytes"] > 0
    finally:
        for process in worker, scheduler:
            if process:
                process.terminate()
                process.wait(30)
