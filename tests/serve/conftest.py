"""A small run, fresh for every test, and a client of the whole application in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.serve.runs import make_small_run
from tsnn.serve.http import build_application
from tsnn.serve.service import Service


@pytest.fixture(scope="session")
def pristine_run(tmp_path_factory) -> Path:
    return make_small_run(tmp_path_factory.mktemp("online") / "run")


@pytest.fixture
def run(pristine_run, tmp_path) -> Path:
    return Path(shutil.copytree(pristine_run, tmp_path / "run"))


@pytest.fixture
def serve(run) -> Iterator[Callable[..., Any]]:
    """`serve(token=..., queue_length=...)` is a client with the service behind it in `client.service`."""
    services = []

    def start(folder: Path = run, token: str | None = None, max_body: int = 2**20, **settings: Any) -> Any:
        service = Service(folder, **settings)
        services.append(service)
        application = build_application(service, token=token, max_body=max_body)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        client = TestClient(application, base_url="http://localhost", headers=headers)
        client.service = service
        return client

    yield start
    for service in services:
        service.close()
