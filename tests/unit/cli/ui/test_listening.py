"""The board as a program, without a browser: its socket, what changes under it, its end."""

import argparse
import asyncio
import math
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bireme.cli import leader
from bireme.cli.arguments import UsageError
from bireme.cli.cluster import ClusterReader, ConsoleError
from bireme.cli.ui import listen, live, recorded
from bireme.cli.ui.server import Board, Guard
from bireme.kube.client import connection_errors
from bireme.kube.credentials import CredentialsError
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from testbed.recordings import record

JOB = """{"metadata": {"namespace": "red", "name": "short"}, "spec": {"queue": "default"},
 "status": {"phase": "Pending", "tasks": [{"name": "worker", "replicas": 8}]}}"""


def test_a_browser_may_be_faster_than_the_server() -> None:
    with listen(0) as found, socket.create_connection(found.getsockname(), timeout=5):
        pass


def test_a_port_that_is_taken_is_named_with_the_remedy() -> None:
    with listen(0) as found:
        port = found.getsockname()[1]
        with pytest.raises(UsageError, match=rf"--port: cannot listen on {port}: .*leave it out"):
            listen(port)


def asking(query: str = "") -> Request:
    """A request for a page, as the board's application has it."""
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    return Request(scope | {"query_string": query.encode()})


async def test_a_job_that_is_deleted_while_its_page_is_made_is_shown_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, found = ("red", "short"), msgspec.json.decode(JOB, type=live.Manifest)

    class Deleting(ClusterReader):
        async def objects_if_allowed(self, path: str, **selectors: str) -> None:
            source._dropping("TrainingJob")(key)

    async def answer(self: live.Live, asked: object) -> None:
        self._dropping("TrainingJob")(key)
        raise ConsoleError("there is no such job any more")

    monkeypatch.setattr(live.Live, "answer", answer)
    source = live.Live(Deleting(None, "red"), argparse.Namespace(), "a cluster")  # type: ignore[arg-type]
    source._ask_after = math.inf  # no leader here
    board = Board(source)
    pages = (board.job, asking()), (board.ask, asking("seconds=1"))
    for page, request in pages:
        source._putting("TrainingJob")(key, found)
        shown = await page(request, *key)
        assert shown.status_code == 200
        assert b"Replicas of worker, now 8" in shown.body
    assert b"there is no such job any more" in shown.body


def test_questions_to_a_record_hold_up_no_end_and_those_in_line_never_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, ended = [], threading.Event(), []

    def slow(*_: object) -> None:
        begun.append("")
        go_on.wait(10.0)
        ended.append("")

    monkeypatch.setattr(recorded, "answers", slow)
    record(tmp_path, a_snapshot([a_node("n0")], a_gang("short", a_task(9))))
    board = Board(recorded.read([tmp_path], ""))

    async def until_the_board_ends() -> None:
        asked = [board.ask(asking("seconds=1"), "default", "short") for _ in range(3)]
        tasks = [asyncio.create_task(each) for each in asked]
        while not begun:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)

    asyncio.run(until_the_board_ends())
    assert (len(begun), ended) == (1, [])
    go_on.set()


async def test_a_token_that_is_gone_is_why_the_board_does_not_know_what_is_kept() -> None:
    async def create(path: str, body: Any) -> Any:
        with connection_errors():
            raise CredentialsError("the token file /gone cannot be read")

    client = SimpleNamespace(create=create)
    parser = argparse.ArgumentParser()
    leader.add_leader(parser)
    options = parser.parse_args([], argparse.Namespace(user=None))
    source = live.Live(ClusterReader(client, "red"), options, "a cluster")  # type: ignore[arg-type]
    await source._ask_reserved()
    assert "the token file /gone cannot be read" in source.view().kept_unknown


@pytest.mark.parametrize(
    ("site", "path", "to", "status"),
    [
        ("same-origin", "/waiting", "document", 200),
        ("none", "/waiting", "document", 200),  # an address that was typed
        ("same-site", "/what-if/red/short", "document", 403),
        ("cross-site", "/", "iframe", 403),
        ("cross-site", "/", "document", 200),  # to which /open leads
        ("cross-site", "/open", "document", 200),
    ],
)
async def test_a_page_of_another_origin_may_only_lead_to_the_first_address(
    site: str, path: str, to: str, status: int
) -> None:
    headers = {"host": "localhost:80", "sec-fetch-site": site, "sec-fetch-dest": to}
    assert await status_for_owner(path, headers) == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:80", 200),
        ("127.0.0.1:80", 200),
        ("attacker.example", 421),
        ("attacker.example:80", 421),
        ("localhost:81", 421),
        ("", 421),
    ],
)
async def test_only_a_name_of_this_machine_is_answered_whatever_cookie_comes_with_it(
    host: str, status: int
) -> None:
    """A name that an attacker lets resolve to this machine would else read the board."""
    assert await status_for_owner("/", {"host": host} if host else {}) == status


async def status_for_owner(path: str, headers: dict[str, str]) -> int:
    """Return the status of an answer to the browser that opened the board's address."""

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await Response("let in")(scope, receive, send)

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("no body is read")

    guard = Guard(page, "token", 80)
    headers = {**headers, "cookie": f"{guard._cookie}={guard._session}"}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": pairs}
    await guard(scope, receive, send)
    status: int = sent[0]["status"]
    return status
