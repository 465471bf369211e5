"""Jobs on a Ray cluster of two nodes: the figures of one machine, and nothing lost or done twice when a node dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.study.small import DATA, SETTINGS, small_study
from tsnn.errors import ConfigError
from tsnn.study.reproduce import reproduce
from tsnn.study.tune import Search, tune
from tsnn.study.workers import run_tasks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray", reason="needs ray; install it with pip install 'tsnn[ray]'")
TASKS = 5
SMALL_STORE = 80 * 1024 * 1024


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": SMALL_STORE, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=node)
    yield started
    ray.shutdown()
    started.shutdown()


def slow_task(task: tuple[str, int]) -> tuple[int, str]:
    """Leaves a mark when it begins (where, and as which process) and when it ends; returns the node it ran on."""
    folder, number = task
    node = ray.get_runtime_context().get_node_id()
    _mark(folder, f"{number} begins on {node} as {os.getpid()}")
    time.sleep(5)  # long enough to be killed in the middle on a busy machine
    _mark(folder, f"{number} ends")
    return number, node


def _mark(folder: str, line: str) -> None:
    with (Path(folder) / "log").open("a") as log:
        log.write(line + "\n")


def test_a_node_that_dies_takes_no_result_with_it(cluster, tmp_path):
    second = cluster.add_node(num_cpus=1, object_store_memory=SMALL_STORE)
    tasks = [(str(tmp_path), number) for number in range(TASKS)]
    got, killed = [], False
    for number, _ in run_tasks(slow_task, tasks, ray=cluster.address):
        got.append(number)
        process = None if killed else _running_on(tmp_path, second.node_id)
        if process is not None:
            cluster.remove_node(second, allow_graceful=False)
            os.kill(process, signal.SIGKILL)  # a machine that dies takes its workers along; Ray's kill alone may not
            killed = True
    log = (tmp_path / "log").read_text().splitlines()
    ends = [line for line in log if line.endswith("ends")]
    assert killed, "no task was running on the second node"
    assert sorted(got) == list(range(TASKS)), "every task is returned, and once"
    assert sorted(ends) == [f"{number} ends" for number in range(TASKS)], "a finished task is never run again"
    assert len(log) - len(ends) == TASKS + 1, "the task that was lost, and it alone, began twice"


def _running_on(folder: Path, node: str) -> int | None:
    """The process that runs a task on the node, if one does."""
    log = [line.split() for line in (folder / "log").read_text().splitlines()]
    ended = {words[0] for words in log if words[1] == "ends"}
    running = [int(words[-1]) for words in log if words[1] == "begins" and words[3] == node and words[0] not in ended]
    return running[0] if running else None


def test_a_cluster_gives_the_figures_of_one_machine(cluster, tmp_path):
    there = reproduce("dgb", tmp_path / "cluster", small_study(seeds=1), ray=cluster.address)
    here = reproduce("dgb", tmp_path / "here", small_study(seeds=1), workers=1)
    assert there["rows"][0] == here["rows"][0]


def test_trials_share_one_storage_through_the_caller(cluster, tmp_path):
    pytest.importorskip("optuna", reason="needs optuna; install it with pip install 'tsnn[tune]'")
    pytest.importorskip("grpc", reason="needs grpcio; install it with pip install 'tsnn[ray]'")
    search = Search(DATA, "strict", SETTINGS)
    there = tune(search, tmp_path / "cluster.db", trials=2, ray=cluster.address)
    here = tune(search, tmp_path / "here.db", trials=2, workers=1)
    assert there == here


def test_no_cluster_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="ray start --head"):
        reproduce("dgb", tmp_path, small_study(seeds=1), ray="127.0.0.1:1")
