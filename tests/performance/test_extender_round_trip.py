"""A light check that the extender stays close to a bare server with the same bytes.

Ratios in one run, never absolute times: both servers live in threads of this process, so both
share its interpreter lock and are asked in turns. The bench proper measures separate processes;
this only catches a hot path that has become several times slower.
"""

import asyncio
import http.client
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from bireme_extender.app import BodyReader, ExtenderApp
from bireme_extender.cache import PlanWaits
from bireme_extender.verbs import Verbs
from testbed.controlplane.process import free_ports
from testbed.extender_calls import (
    FixedFreshness,
    a_body,
    a_group,
    a_node,
    a_pod,
    a_state,
    make_metrics,
)

NODES = [f"node-{number:05}.cluster.example" for number in range(5000)]
CALLS = 200
LIMITS = {1: 3.0, 500: 4.0, 5000: 6.0}
"""Generous on purpose: the machine may be busy, and the bare server does not even parse."""


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body and answers what the extender answers, without looking at anything."""
    while (await receive()).get("more_body"):
        pass
    reply = (
        b'{"Nodes":null,"NodeNames":["node-00000.cluster.example"],"FailedNodes":{},'
        b'"FailedAndUnresolvableNodes":{},"Error":""}'
    )
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


@contextmanager
def served(app: Any) -> Iterator[http.client.HTTPConnection]:
    """``app`` under uvicorn in a thread, and a connection to it."""
    (port,) = free_ports(1)
    config = uvicorn.Config(
        app, port=port, http="httptools", ws="none", lifespan="off", log_config=None,
        access_log=False, server_header=False, date_header=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        yield connection
    finally:
        connection.close()
        server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()


def an_extender() -> ExtenderApp:
    metrics = make_metrics()
    state = a_state(
        [a_node(name) for name in NODES], [a_group(places=(("worker", NODES[0], "0"),))]
    )
    verbs = Verbs(state, PlanWaits(0.2), metrics, FixedFreshness())
    return ExtenderApp(verbs, metrics, BodyReader(8 * 2**20, 2.0))


def call_seconds(connection: http.client.HTTPConnection, body: bytes) -> tuple[float, bytes]:
    began = time.perf_counter()
    connection.request("POST", "/filter", body, {"Content-Type": "application/json"})
    reply = connection.getresponse().read()
    return time.perf_counter() - began, reply


@pytest.mark.parametrize("names", LIMITS)
def test_filter_stays_close_to_a_bare_server(names: int) -> None:
    body = a_body(a_pod(), NODES[:names])
    with served(an_extender()) as extender, served(bare) as plain:
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(CALLS):
            for connection, is_ours in ((extender, True), (plain, False)):
                seconds, reply = call_seconds(connection, body)
                times[is_ours].append(seconds)
                assert b'"NodeNames":["node-00000.cluster.example"]' in reply
    ratio = statistics.median(times[True]) / statistics.median(times[False])
    assert ratio <= LIMITS[names], f"{ratio:.2f} times a bare server at {names} names"
