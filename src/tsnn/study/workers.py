"""Who runs the jobs: this process, a process per core, or a Ray cluster. Only the caller stores what they return."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from tsnn.errors import ConfigError, RunError
from tsnn.evaluation.suite import data_root

T = TypeVar("T")
R = TypeVar("R")
REACH_SECONDS = 5.0
RETRIES = 10  # of a task whose node was lost
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run_tasks(
    function: Callable[[T], R], tasks: Sequence[T], *, workers: int | None = None, ray: str | None = None
) -> Iterator[R]:
    """Results as they come, in any order."""
    if ray is not None:
        return _on_ray(function, tasks, ray)
    workers = min(workers or os.cpu_count() or 1, len(tasks))
    return map(function, tasks) if workers <= 1 else _in_processes(function, tasks, workers)


def _in_processes(function: Callable[[T], R], tasks: Sequence[T], workers: int) -> Iterator[R]:
    context = multiprocessing.get_context("spawn")
    with _one_thread_each(), ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(function, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise RunError("a worker process was killed; run the same command again, it goes on from there.") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Settings that numerical libraries read when a child process first imports them: one thread each."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _on_ray(function: Callable[[T], R], tasks: Sequence[T], address: str) -> Iterator[R]:
    """Run one task on each core of the cluster; a task whose node is lost runs again elsewhere.

    Results are small and are sent to the caller as soon as they exist, so a lost node loses no result.
    """
    ray = import_ray()
    with _connection(ray, address):
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(function)
        pending = [remote.remote(task) for task in tasks]
        while pending:
            done, pending = ray.wait(pending, num_returns=1)
            yield from ray.get(done)


@contextmanager
def _connection(ray: Any, address: str) -> Iterator[None]:
    environment = {"TSNN_DATA": str(data_root().resolve()), **dict.fromkeys(_THREADS, "1")}
    try:
        _reach(address)
        ray.init(address=address, runtime_env={"env_vars": environment}, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"no Ray cluster answers at {address} ({error}); start one with ray start --head.") from None
    try:
        yield
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Fail at once where nothing listens; Ray itself tries for minutes and then ends the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()


def import_ray() -> Any:
    """Ray, or the sentence that says how to get it."""
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs the package ray; install it with pip install 'tsnn[ray]'.") from None
    return ray
