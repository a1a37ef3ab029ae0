"""The HTTP contract, without a socket: statuses, bounds on bodies, and never a 500."""

import asyncio
import json
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp

from bireme_extender.app import VERSION, BodyReader, ExtenderApp
from bireme_extender.cache import PlanWaits
from bireme_extender.verbs import Verbs
from testbed.examples import examples
from testbed.extender_calls import (
    FixedFreshness,
    a_body,
    a_group,
    a_node,
    a_pod,
    a_state,
    call,
    make_metrics,
)

NODES = [a_node(f"n{number}") for number in range(4)]
ALL = [f"n{number}" for number in range(4)]


def an_app(mode: str = "Pinned", **bounds: Any) -> FastAPI:
    metrics = make_metrics()
    state = a_state(NODES, [a_group(mode=mode)])
    verbs = Verbs(state, PlanWaits(0), metrics, FixedFreshness())
    bounds = {"limit_bytes": 8 * 2**20, "timeout_seconds": 2.0, **bounds}
    return ExtenderApp(verbs, metrics, BodyReader(**bounds))


def error_of(answer: tuple[int, bytes]) -> str:
    return str(json.loads(answer[1])["error"])


@pytest.mark.parametrize("path", ["/filter", "/prioritize"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"42",
        b"{",
        b'{"Pod": {"metadata": {"labels": {"a": 1}}}}',
        b'{"Pod": {"metadata": {"name": "\xff\xfe"}}}',
        b'{"Pod": {"metadata": {}, "spec": {"containers": {}}}}',
        b'{"Deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\x1f\x8b\x08\x00gzip",
    ],
)
async def test_malformed_body_is_a_400_with_a_json_reason(path: str, body: bytes) -> None:
    answer = await call(an_app(), "POST", path, body)
    assert answer[0] == 400
    assert error_of(answer).startswith("the body is not an ExtenderArgs object: ")


@pytest.mark.parametrize("names", [b'"n0"', b"[null]", b"[1]", b"{}"])
async def test_names_that_are_no_list_of_texts_are_a_400_where_names_decide(names: bytes) -> None:
    answer = await call(an_app(), "POST", "/filter", b'{"NodeNames": %b}' % names)
    assert answer[0] == 400


async def test_body_in_many_pieces_is_put_together() -> None:
    body = a_body(a_pod(), ALL)
    pieces = [body[start : start + 7] for start in range(0, len(body), 7)]
    status, reply = await call(an_app(), "POST", "/filter", *pieces)
    assert (status, json.loads(reply)["NodeNames"]) == (200, ["n0"])


async def test_body_over_the_limit_is_refused_before_it_is_parsed() -> None:
    app = an_app(limit_bytes=1000)
    long = {"Content-Length": "1001"}
    for chunks, headers in (
        ((b"x" * 1001,), {}),
        ((b"x" * 500, b"x" * 501), {}),
        ((b"x",), long),
    ):
        answer = await call(app, "POST", "/filter", *chunks, headers=headers)
        assert answer[0] == 413
        assert "longer than 1000 bytes" in error_of(answer)
    fits, _ = await call(app, "POST", "/filter", a_body(None, ["n0"]).ljust(1000))
    assert fits == 200


def hanging(app: ASGIApp) -> ASGIApp:
    """``app`` for a client that sends half a body and then nothing."""

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        sent = False

        async def receive_half() -> Any:
            nonlocal sent
            if sent:
                await asyncio.sleep(3600)
            sent = True
            return {"type": "http.request", "body": b'{"Pod"', "more_body": True}

        await app(scope, receive_half, send)

    return slow


async def test_slow_body_is_cut_off() -> None:
    answer = await call(hanging(an_app(timeout_seconds=0.05)), "POST", "/filter")
    assert answer[0] == 408
    assert "0.05 s" in error_of(answer)


async def test_unfinished_bodies_share_a_budget_and_give_it_back() -> None:
    app = an_app(limit_bytes=10, timeout_seconds=0.2)
    slow = [asyncio.create_task(call(hanging(app), "POST", "/filter")) for _ in range(8)]
    statuses = sorted(status for status, _ in await asyncio.gather(*slow))
    assert statuses == [408] * 6 + [503] * 2
    again = await call(hanging(app), "POST", "/filter")
    assert again[0] == 408


async def test_client_that_hangs_up_gets_no_answer() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/filter", "headers": []}
    await an_app()(scope, receive, send)
    assert sent == []


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "DELETE"])
async def test_verbs_are_called_with_post_only(method: str) -> None:
    answer = await call(an_app(), method, "/filter")
    assert answer[0] == 405
    assert "POST" in error_of(answer)


async def test_unknown_path_is_a_404() -> None:
    assert (await call(an_app(), "POST", "/preempt", b"{}"))[0] == 404


async def test_openapi_document_describes_both_verbs() -> None:
    status, body = await call(an_app(), "GET", "/openapi.json")
    document = json.loads(body)
    assert status == 200
    assert document["info"]["version"] == VERSION
    assert {"/filter", "/prioritize"} <= set(document["paths"])


# --- fuzz -------------------------------------------------------------------------------------

TEXT = st.text(max_size=12) | st.sampled_from(["job", "worker", "1.0", "0", "n0", "n1", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(width=32) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)
NAMES = st.none() | st.lists(st.sampled_from([*ALL, "ghost", "", "n0\n"]) | TEXT, max_size=30)
KEYS = st.sampled_from(
    [
        "metadata",
        "spec",
        "status",
        "labels",
        "containers",
        "initContainers",
        "overhead",
        "resources",
    ]
)


def mutated(pod: Any, key: str, value: Any) -> Any:
    """``pod`` with every field called ``key`` replaced by ``value``."""
    if isinstance(pod, dict):
        return {k: value if k == key else mutated(v, key, value) for k, v in pod.items()}
    return [mutated(item, key, value) for item in pod] if isinstance(pod, list) else pod


PODS = st.one_of(
    st.just(a_pod()),
    st.builds(a_pod, TEXT, group=TEXT, task=TEXT, plan=TEXT, uid=TEXT, job_uid=TEXT),
    st.builds(mutated, st.just(a_pod()), KEYS, JSON),
    st.builds(lambda r: a_pod(requests=r), st.dictionaries(TEXT, TEXT, max_size=3)),
    JSON,
)


def check_reply(path: str, body: bytes, asked: set[str]) -> None:
    reply = json.loads(body)
    if path == "/filter":
        assert set(reply["NodeNames"]) <= asked
        assert set(reply["FailedAndUnresolvableNodes"]) <= asked
        assert reply["Error"] == ""
        return
    assert len(reply) <= 16
    for entry in reply:
        assert entry["Host"] in asked
        assert type(entry["Score"]) is int
        assert 0 <= entry["Score"] <= 10


@examples(100)
@given(pod=PODS, names=NAMES, mode=st.sampled_from(["Pinned", "Score"]), nodes=JSON)
def test_any_question_gets_a_legal_reply_or_a_400(
    pod: Any, names: list[str] | None, mode: str, nodes: Any
) -> None:
    asyncio.run(ask_both(an_app(mode), json.dumps({"Pod": pod, "NodeNames": names}), names))
    asyncio.run(
        ask_both(an_app(mode), json.dumps({"Pod": pod, "Nodes": nodes, "NodeNames": names}), names)
    )


async def ask_both(app: ASGIApp, text: str, names: list[str] | None) -> None:
    for path in ("/filter", "/prioritize"):
        status, body = await call(app, "POST", path, text.encode())
        assert status in {200, 400}
        if status == 400:
            assert json.loads(body)["error"]
        elif names is not None:
            check_reply(path, body, set(names))


@given(body=st.binary(max_size=200))
def test_any_bytes_get_a_legal_reply_or_a_400(body: bytes) -> None:
    status, reply = asyncio.run(call(an_app(), "POST", "/filter", body))
    assert status in {200, 400}
    assert isinstance(json.loads(reply), dict)


@pytest.mark.parametrize("mode", ["Pinned", "Score"])
async def test_twenty_thousand_names_are_answered(mode: str) -> None:
    many = [f"node-{number:05}.example" for number in range(20_000)]
    body = a_body(a_pod(), [*many, "n0"])
    status, reply = await call(an_app(mode), "POST", "/filter", body)
    assert (status, json.loads(reply)["NodeNames"]) == (200, ["n0"])
