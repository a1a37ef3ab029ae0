"""The board as a program, without a browser: its socket, what changes under it, its end."""

import argparse
import math
import socket

import msgspec
import pytest
from starlette.requests import Request

from bireme.cli.arguments import UsageError
from bireme.cli.cluster import ConsoleError, Reader
from bireme.cli.ui import listen, live
from bireme.cli.ui.server import Board

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

    class Deleting(Reader):
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
