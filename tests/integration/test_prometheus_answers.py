"""Answers of Prometheus, or of another server in its place, and their handling."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bireme.core.times import HOUR
from bireme.prometheus import MAX_BYTES, PrometheusError, Sample, hourly, latest

START = 1_795_305_600.0
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakePrometheus:
    """Answers range queries with ``answer``, which a test sets."""

    def __init__(self) -> None:
        self.answer: Answer = self.refuse
        self.forms: list[dict[str, Any]] = []
        self.url = ""

    async def refuse(self, request: web.Request) -> web.StreamResponse:
        raise web.HTTPNotFound

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.forms.append(dict(await request.post()))
        return await self.answer(request)

    def says(self, body: object, status: int = 200, **headers: str) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            return web.json_response(body, status=status, headers=headers)

        self.answer = answer

    def series(self, *many: list[list[object]], **more: object) -> None:
        result = [{"metric": {"pool": str(n)}, "values": v} for n, v in enumerate(many)]
        data = {"resultType": "matrix", "result": result}
        self.says({"status": "success", "data": data, **more})


@pytest.fixture
async def fake() -> AsyncIterator[FakePrometheus]:
    served = FakePrometheus()
    app = web.Application()
    for path in ("query_range", "query"):
        app.router.add_post(f"/base/api/v1/{path}", served.serve)
    async with TestServer(app) as server:
        served.url = str(server.make_url("/base/"))
        yield served


async def asked(fake: FakePrometheus, hours: int = 4, seconds: float = 10) -> list[float]:
    values, notes = await hourly(fake.url, "sum(x)", START, hours, seconds)
    assert notes == ()
    return [float(value) for value in values]


async def refusal(fake: FakePrometheus, seconds: float = 10) -> str:
    with pytest.raises(PrometheusError) as caught:
        await asked(fake, seconds=seconds)
    return str(caught.value)


async def test_each_hour_gets_the_value_at_its_end(fake: FakePrometheus) -> None:
    fake.series([[START + HOUR * n, str(n + 0.5)] for n in (1, 2, 4)])
    values = await asked(fake)
    np.testing.assert_array_equal(values, [1.5, 2.5, np.nan, 4.5])
    (form,) = fake.forms
    assert form["query"] == "sum(x)"
    assert [float(form[name]) for name in ("start", "end", "step")] == [
        START + HOUR,
        START + 4 * HOUR,
        HOUR,
    ]


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "x", ""])
async def test_values_that_are_no_numbers_count_as_not_recorded_and_are_named(
    fake: FakePrometheus, text: str
) -> None:
    fake.series([[START + HOUR, "1"], [START + 2 * HOUR, text], [START + 3 * HOUR, text]])
    values, notes = await hourly(fake.url, "x", START, 3)
    np.testing.assert_array_equal(values, [1, np.nan, np.nan])
    assert notes == (f"2 values are no finite numbers, first {text!a}",)


async def test_warnings_are_passed_on_and_bounded(fake: FakePrometheus) -> None:
    fake.series([[START + HOUR, "1"]], warnings=["x" * 5000] * 9)
    _, notes = await hourly(fake.url, "x", START, 3)
    assert notes == (f"Prometheus warns: {'x' * 200}",) * 3


async def test_nobody_there_is_reported_with_what_to_check(fake: FakePrometheus) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        fake.url = f"http://127.0.0.1:{free.getsockname()[1]}"
    message = await refusal(fake)
    assert "Prometheus cannot be asked" in message
    assert "check history.prometheus.url" in message


@pytest.mark.parametrize("url", ["http://", "http://[::1", "ftp://x"])
async def test_an_address_that_is_none_is_refused(fake: FakePrometheus, url: str) -> None:
    fake.url = url
    assert "Prometheus cannot be asked" in await refusal(fake)


async def test_one_that_never_answers_is_given_up(fake: FakePrometheus) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    fake.answer = answer
    assert "gave no answer within 0.2 s" in await refusal(fake, seconds=0.2)


async def test_one_that_drips_is_given_up_as_well(fake: FakePrometheus) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(600):
            await response.write(b" ")
            await asyncio.sleep(0.02)
        return response

    fake.answer = answer
    assert "gave no answer within 0.3 s" in await refusal(fake, seconds=0.3)


async def test_one_that_answers_without_end_is_stopped(fake: FakePrometheus) -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)
            sent += 65536

    fake.answer = answer
    assert "more than 2 MiB; aggregate the query" in await refusal(fake)
    assert sent < 10 * MAX_BYTES


@pytest.mark.parametrize("count", [0, 2, 50])
async def test_anything_but_one_series_is_refused_with_the_remedy(
    fake: FakePrometheus, count: int
) -> None:
    fake.series(*([[START + HOUR, "1"]] for _ in range(count)))
    remedy = "aggregate it, as in sum(...)" if count else "check its names and labels"
    assert await refusal(fake) == f"the query has {count} series, not one; {remedy}"


async def test_a_refused_query_is_reported_in_the_words_of_prometheus(fake: FakePrometheus) -> None:
    fake.says({"status": "error", "errorType": "bad_data", "error": "parse error: x"}, status=400)
    assert await refusal(fake) == "Prometheus refuses the query: HTTP 400, parse error: x"


@pytest.mark.parametrize("body", [[], "x", {"status": 5}, {"data": {"resultType": 1}}, None])
async def test_something_else_than_prometheus_is_recognised(
    fake: FakePrometheus, body: object
) -> None:
    fake.says(body)
    assert "is no Prometheus: HTTP 200" in await refusal(fake)


async def test_a_page_of_a_proxy_is_quoted_without_its_control_characters(
    fake: FakePrometheus,
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>\x1b[31mlog in" + "x" * 9000, status=502)

    fake.answer = answer
    message = await refusal(fake)
    assert r"HTTP 502, '<html>\x1b[31mlog in" in message
    assert len(message) < 400


async def test_it_is_not_followed_elsewhere(fake: FakePrometheus) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(location="http://127.0.0.1:1/")

    fake.answer = answer
    assert "HTTP 307" in await refusal(fake)


async def test_a_compressed_answer_that_nobody_asked_for_is_not_unpacked(
    fake: FakePrometheus,
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.Response(body=b" " * 3_000_000)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    fake.answer = answer
    assert "is no Prometheus" in await refusal(fake)


@pytest.mark.parametrize("at", [START, START + 5 * HOUR, START + HOUR + 1, -HOUR, 1e300])
async def test_times_that_were_not_asked_for_are_refused(fake: FakePrometheus, at: float) -> None:
    fake.series([[at, "1"]])
    assert "which was not asked for" in await refusal(fake)


@pytest.mark.parametrize("kind", ["vector", "scalar", "string", ""])
async def test_an_answer_of_another_kind_is_refused(fake: FakePrometheus, kind: str) -> None:
    fake.says({"status": "success", "data": {"resultType": kind, "result": []}})
    assert await refusal(fake) == f"Prometheus answers with {kind!r}, not a matrix"


@pytest.mark.parametrize("values", [[["x", "1"]], [[1]], [5], "x", [[START, 7]]])
async def test_a_series_of_another_form_is_refused(fake: FakePrometheus, values: Any) -> None:
    fake.series(values)
    assert "a series that is none" in await refusal(fake)


# --- the values of many series at a moment ------------------------------------------------------


def vector(*series: object, kind: str = "vector") -> object:
    return {"status": "success", "data": {"resultType": kind, "result": list(series)}}


async def test_a_vector_is_read_with_its_labels(fake: FakePrometheus) -> None:
    fake.says(vector({"metric": {"queue": "q"}, "value": [START, "1.5"]}, {"value": [START, "2"]}))
    found = await latest(fake.url, "sum by (queue) (x)", START, "--prometheus")
    assert found == [Sample({"queue": "q"}, 1.5), Sample({}, 2.0)]
    (form,) = fake.forms
    assert (form["query"], float(form["time"])) == ("sum by (queue) (x)", START)
    fake.says(vector())
    assert await latest(fake.url, "x", START, "--prometheus") == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (vector(kind="scalar"), "answers with 'scalar', not a vector"),
        (vector({"value": [START, "NaN"]}), "answers with 'NaN', which is no finite number"),
        (vector({"value": [START]}), "a series that is none"),
        (vector({"value": [START, "x"]}), "a series that is none"),
        ("no object", "what answers at --prometheus is no Prometheus"),
    ],
)
async def test_a_vector_that_is_none_is_refused(
    fake: FakePrometheus, answer: object, words: str
) -> None:
    fake.says(answer)
    with pytest.raises(PrometheusError, match=words):
        await latest(fake.url, "x", START, "--prometheus")
