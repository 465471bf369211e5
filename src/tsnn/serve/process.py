"""A process that serves one run until it is told to stop."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from pathlib import Path

import torch
import uvicorn

from tsnn.engine.forward import forward
from tsnn.errors import ConfigError
from tsnn.kernel_cache import is_cached, telling
from tsnn.online.predictor import Predictor
from tsnn.plan.survey import survey
from tsnn.plan.sweep import sweep
from tsnn.serve.gate import JsonLines, is_loopback, logger
from tsnn.serve.http import build_application
from tsnn.serve.protocol import HTTP_PROTOCOL
from tsnn.serve.service import Service

GRACE_SECONDS = 5  # that a client has to take its last answers; one that does not read must not keep the state unsaved


def run_service(
    run: Path,
    *,
    host: str,
    port: int,
    token: str | None,
    max_body: int,
    queue_length: int,
    snapshot_every: int,
    max_ahead: str | None = None,
    max_nodes: int | None = None,
) -> None:
    """Restore, listen, serve, and on SIGINT or SIGTERM finish what waits and write a snapshot."""
    if not token and not is_loopback(host):
        raise ConfigError(f"{host} can be reached by others; set a token with --token or TSNN_TOKEN first.")
    torch.set_num_threads(1)  # one core for the state, the other for the requests
    _log_as_json()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # uvicorn raises it again once every request is answered
    with _listen(host, port) as listener:
        _compile(run)
        service = Service(
            run,
            queue_length=queue_length,
            snapshot_every=snapshot_every,
            max_ahead=max_ahead,
            max_nodes=max_nodes,
            say=logger.warning,
        )
        try:
            app = build_application(service, token=token or None, max_body=max_body)
            address, bound = listener.getsockname()[:2]
            gc.collect()
            gc.freeze()  # what exists by now stays: later collections skip it, so that no request waits for them
            logger.info("ready", extra={"fields": {"url": f"http://{address}:{bound}", "position": service.applied}})
            config = uvicorn.Config(
                app,
                http=HTTP_PROTOCOL,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_keep_alive=30,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            pass  # SIGINT ends the service as SIGTERM does
        finally:
            service.close()
            logger.info("stopped", extra={"fields": {"position": service.applied}})


def _compile(run: Path) -> None:
    """Where this machine has not done so before, let an event happen to a copy of the run, and ask about it.

    So no request waits for the compiler. The log says what is being compiled.
    """
    if all(is_cached(kernel) for kernel in (sweep, forward, survey)):
        return

    def say(done: int, total: int, text: str = "") -> None:
        logger.info(text)

    with telling(say):
        copy = Predictor.load(run)
        shape, about, (src, *_, dst) = copy.run.model.shape, copy.run.description, copy.run.ids.external
        relation = (about.relations or (0,))[0] if shape.num_relations else None
        copy.observe(src, dst, copy.question_time(None), [0.0] * shape.msg_dim or None, relation)
        copy.recommend(src, copy.question_time(None), k=1, edge_type=relation)
        copy.explain(src, dst, copy.question_time(None), edge_type=relation)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port} ({error.strerror}); choose another --port.") from None


def _log_as_json() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for own, level in ((logger, logging.INFO), (logging.getLogger("uvicorn.error"), logging.WARNING)):
        own.handlers = [handler]
        own.propagate = False
        own.setLevel(level)
