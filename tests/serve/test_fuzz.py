"""Requests that nobody would write, made from the OpenAPI document, valid and invalid, against the whole service."""

from __future__ import annotations

import pytest
import schemathesis
import schemathesis.specs.openapi.checks as openapi_checks
from hypothesis import HealthCheck, Phase, given, settings

from tests.serve.runs import as_event, make_small_run, some_events
from tests.serve.states import fingerprint
from tsnn.serve.http import build_application
from tsnn.serve.service import Service

LOCAL = {"Host": "localhost"}
CHECKS = [
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
]
OPERATIONS = [
    "POST /events",
    "POST /score",
    "GET /recommend",
    "GET /forecast",
    "GET /explain",
    "GET /node",
    "GET /health",
    "GET /health/live",
    "GET /health/ready",
    "GET /metrics",
]
TAKE_NOTHING = ("GET /health", "GET /health/live", "GET /health/ready", "GET /metrics")
VALID, INVALID = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
CASES = [(label, VALID) for label in OPERATIONS]
CASES += [(label, INVALID) for label in OPERATIONS if label not in TAKE_NOTHING]
FEW = settings(
    max_examples=50, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    service = Service(make_small_run(tmp_path_factory.mktemp("fuzz") / "run"))
    service.submit([as_event(event) for event in some_events(10)]).result()
    application = build_application(service)
    yield service, schemathesis.openapi.from_asgi("/openapi.json", application, headers=LOCAL)
    service.close()


@pytest.mark.slow
@pytest.mark.parametrize(("label", "mode"), CASES)
def test_no_request_breaks_the_service_or_changes_it_by_being_refused(fuzzed, label, mode):
    service, schema = fuzzed
    method, path = label.split()
    statuses = []

    @FEW
    @given(case=schema[path][method].as_strategy(mode))
    def fuzz(case):
        before = fingerprint(service.predictor), service.log.position
        answer = case.call(headers=LOCAL)
        case.validate_response(answer, checks=CHECKS)
        statuses.append(answer.status_code)
        if path != "/events" or answer.status_code != 200:
            assert (fingerprint(service.predictor), service.log.position) == before

    fuzz()
    assert statuses
    assert set(statuses) <= {200, 422}


def test_the_document_names_every_path_and_no_other_place(serve):
    document = serve().get("/openapi.json").json()
    assert set(document["paths"]) == {label.split()[1] for label in OPERATIONS}
    for path in document["paths"].values():
        for operation in path.values():
            assert {"200", "401", "413", "422", "429", "503"} <= set(operation["responses"])
