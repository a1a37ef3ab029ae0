"""The module of training scripts: it sends the latest, and never costs a training anything."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bireme import report as module
from bireme.report import _Reporter
from bireme.testing import ManualClock


class Endpoint(ThreadingHTTPServer):
    """Keeps what it was sent, and answers with the next of ``answers``, else 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heard: list[tuple[str, Any]] = []
        self.answers: list[int] = []


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((self.headers["Authorization"], json.loads(body)))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    served = Endpoint()
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.shutdown()
    served.server_close()
    thread.join()


Make = Callable[..., _Reporter]


@pytest.fixture
def make(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A reporter to the endpoint, with the environment of a pod but for what is given."""
    monkeypatch.setattr("atexit.register", lambda *_: None)
    token = tmp_path / "token"
    token.write_text("secret\n")
    pod = {
        "BIREME_PROGRESS_URL": f"http://127.0.0.1:{endpoint.server_port}/progress",
        "BIREME_PROGRESS_TOKEN_FILE": str(token),
    }

    def made(**environment: str) -> _Reporter:
        return _Reporter({**pod, **environment})

    return made


def test_latest_numbers_are_sent_with_the_token(make: Make, endpoint: Endpoint) -> None:
    reporter = make(RANK="0")
    assert reporter.take({"step": 25, "total_steps": 100, "loss": 0.5}, 60)
    assert reporter.finish(5)
    ((bearer, body),) = endpoint.heard
    assert bearer == "Bearer secret"
    assert body["trainerStatus"] == {
        "progressPercentage": 25.0,
        "estimatedRemainingSeconds": 60.0,
        "metrics": [
            {"name": "step", "value": "25.0"},
            {"name": "total_steps", "value": "100.0"},
            {"name": "loss", "value": "0.5"},
        ],
    }


def test_only_the_last_of_many_is_sent_before_the_pause_is_over(
    make: Make, endpoint: Endpoint
) -> None:
    reporter = make()
    for step in range(1000):
        assert reporter.take({"step": step}, None)
    assert reporter.finish(5)
    assert len(endpoint.heard) <= 3
    assert endpoint.heard[-1][1]["trainerStatus"]["metrics"][0]["value"] == "999.0"


def test_token_is_read_again_for_every_report(
    make: Make, endpoint: Endpoint, tmp_path: Path
) -> None:
    reporter = make()
    reporter.take({"loss": 1.0}, None)
    reporter.finish(5)
    (tmp_path / "token").write_text("rotated")
    reporter.take({"loss": 0.5}, None)
    reporter.finish(5)
    assert [bearer for bearer, _ in endpoint.heard] == ["Bearer secret", "Bearer rotated"]


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_refused_report_is_kept_and_sent_again(make: Make, endpoint: Endpoint, status: int) -> None:
    endpoint.answers.append(status)
    reporter = make()
    reporter.take({"loss": 1.0}, None)
    reporter.finish(5)  # the thread may have been refused before, and this be the second try
    assert reporter.finish(5)
    assert len(endpoint.heard) == 2


def test_other_ranks_say_nothing(make: Make, endpoint: Endpoint) -> None:
    assert not make(RANK="3").take({"loss": 1.0}, None)
    assert endpoint.heard == []


def test_outside_a_cluster_it_does_nothing_and_says_so_once(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = make(BIREME_PROGRESS_URL="")
    assert [reporter.take({"loss": 1.0}, None) for _ in range(3)] == [False] * 3
    assert len(caplog.records) == 1
    assert "BIREME_PROGRESS_URL is not set" in caplog.text


def test_numbers_that_are_none_are_left_out(make: Make, endpoint: Endpoint) -> None:
    reporter = make()
    assert not reporter.take({"loss": float("nan")}, None)
    assert reporter.take({"loss": float("inf"), "accuracy": 0.5}, None)
    reporter.finish(5)
    assert [m["name"] for m in endpoint.heard[0][1]["trainerStatus"]["metrics"]] == ["accuracy"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BIREME_PROGRESS_URL", "file:///etc/passwd"),
        ("BIREME_PROGRESS_URL", "http://127.0.0.1:1/progress"),
        ("BIREME_PROGRESS_TOKEN_FILE", "/no/such/file"),
        ("BIREME_PROGRESS_TOKEN_FILE", ""),
        ("BIREME_PROGRESS_URL", "http://[bad"),
    ],
)
def test_nothing_that_is_wrong_reaches_the_training(
    make: Make, caplog: pytest.LogCaptureFixture, variable: str, value: str
) -> None:
    reporter = make(**{variable: value})
    assert reporter.take({"loss": 1.0}, None)
    assert not reporter.finish(5)
    assert not reporter.finish(5)
    assert len(caplog.records) == 1


def test_reports_go_on_after_any_number_of_failures(
    make: Make, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1100 failed tries, without a pause between them: a day and a half without an endpoint."""
    monkeypatch.setattr(module, "MAX_PAUSE_SECONDS", 0.0)
    reporter, tries = make(), 0
    post = reporter._post

    def fail_at_first(body: bytes) -> tuple[int, str, str]:
        nonlocal tries
        tries += 1
        if tries <= 1100:
            raise ConnectionRefusedError
        return post(body)

    monkeypatch.setattr(reporter, "_post", fail_at_first)
    assert reporter.take({"loss": 1.0}, None)
    until = time.monotonic() + 30
    while not endpoint.heard and time.monotonic() < until:
        reporter.finish(0.1)
    assert tries == 1101
    assert reporter.finish(5)


def test_error_of_any_kind_leaves_a_thread_that_sends_the_next_report(
    make: Make, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PAUSE_SECONDS", 0.0)
    reporter = make()
    post, errors = reporter._post, [KeyError("x"), OverflowError(), RecursionError()]

    def fail_at_first(body: bytes) -> tuple[int, str, str]:
        if errors:
            raise errors.pop()
        return post(body)

    monkeypatch.setattr(reporter, "_post", fail_at_first)
    reporter.take({"loss": 1.0}, None)
    until = time.monotonic() + 10
    while not endpoint.heard and time.monotonic() < until:
        reporter.finish(0.1)
    assert len(endpoint.heard) == 1


def test_missing_name_of_the_token_file_is_said_and_holds_up_no_end(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("atexit.register", lambda *_: None)
    url = f"http://127.0.0.1:{endpoint.server_port}/progress"
    reporter = _Reporter({"BIREME_PROGRESS_URL": url})
    began = time.monotonic()
    assert reporter.take({"loss": 1.0}, None)
    assert not reporter.finish(60)
    assert time.monotonic() - began < 30
    assert "BIREME_PROGRESS_TOKEN_FILE is not set" in caplog.text


def test_machine_without_room_for_a_thread_costs_no_wait_at_the_end(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    ended: list[object] = []
    monkeypatch.setattr("atexit.register", lambda *call: ended.append(call))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(module, "_reporter", make())
    assert module.report(loss=1.0) is False
    assert "can't start new thread" in caplog.text
    assert ended == []


def test_time_that_is_left_is_judged_by_the_pace_of_the_steps(
    make: Make, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(module, "_now", clock)
    reporter = make()
    reporter.take({"step": 10, "total_steps": 100}, None)
    clock.advance(20.0)
    reporter.take({"step": 50, "total_steps": 100}, None)
    reporter.finish(5)
    assert endpoint.heard[-1][1]["trainerStatus"]["estimatedRemainingSeconds"] == 25.0


def test_call_with_what_is_no_number_returns_false(
    make: Make, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_reporter", make())
    assert module.report(loss="much") is False  # type: ignore[arg-type]  # on purpose
    assert module.report(loss=0.5, lr=1e-3) is True
    assert module.finish()
    assert [m["name"] for m in endpoint.heard[0][1]["trainerStatus"]["metrics"]] == ["loss", "lr"]


def test_file_works_alone_without_any_package(tmp_path: Path, endpoint: Endpoint) -> None:
    """Copied beside a script, in an isolated interpreter, and the end of the program sends it."""
    shutil.copy(module.__file__, tmp_path / "report.py")
    (tmp_path / "token").write_text("secret")
    script = "import sys; sys.path.insert(0, '.'); from report import report; report(loss=0.5)"
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        cwd=tmp_path,
        env={
            "BIREME_PROGRESS_URL": f"http://127.0.0.1:{endpoint.server_port}/progress",
            "BIREME_PROGRESS_TOKEN_FILE": "token",
        },
        check=True,
        timeout=60,
    )
    assert len(endpoint.heard) == 1
