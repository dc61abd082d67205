"""Spreads work over a pool of two processes: pools.py fork|spawn|forkserver|futures|joblib|dask|ray"""

import concurrent.futures
import multiprocessing
import os
import sys
import tempfile

import work

TASKS = [2_000 + 100 * index for index in range(20)]


def by_multiprocessing(kind):
    pool = multiprocessing.get_context(kind).Pool(2)
    results = pool.map(work.work, TASKS)
    pool.close()
    pool.join()
    return results


def by_futures():
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        return list(executor.map(work.work, TASKS))


def by_joblib():
    import joblib

    return joblib.Parallel(n_jobs=2)(joblib.delayed(work.work)(count) for count in TASKS)


def by_dask():
    import distributed

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            return client.gather(client.map(work.work, TASKS))


def by_ray():
    import ray

    # Socket paths have at most 107 characters.
    folder = tempfile.mkdtemp(prefix="ray.", dir="/tmp")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder, object_store_memory=100 << 20)
    results = ray.get([ray.remote(work.work).remote(count) for count in TASKS])
    ray.shutdown()
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    return results


if __name__ == "__main__":
    kind = sys.argv[1]
    if kind in ("fork", "spawn", "forkserver"):
        results = by_multiprocessing(kind)
    else:
        results = globals()[f"by_{kind}"]()
    print(kind, "right" if results == TASKS else results)
