"""``bireme ui RECORD`` in a real browser: any cycle of a record, also of thousands of gangs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser

from bireme.core.settings import SchedulingSettings
from bireme.testing import a_gang, a_node, a_task
from testbed.board import PAGES, Visitor, board, chromium, processor_seconds
from testbed.recordings import RecordedCluster

NOW = 1e9
PATIENCE_MS = 60_000
MAX_ELEMENTS = 3000
"""What a browser lays out without delay."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


def world(folder: Path, nodes: int) -> RecordedCluster:
    folder.mkdir()
    found = [a_node(f"n{number:03}") for number in range(nodes)]
    settings = SchedulingSettings(preemption=False)
    return RecordedCluster(found, settings=settings, folder=folder, now=NOW)


def a_line(folder: Path) -> RecordedCluster:
    """A node that ``long`` has; ``short`` and then ``small`` wait for it."""
    record = world(folder, nodes=1)
    record.decide()
    for second, gang in (
        (0, a_gang("long", a_task(8), estimated_seconds=600.0)),
        (20, a_gang("short", a_task(8), estimated_seconds=60.0)),
        (40, a_gang("small", a_task(4), estimated_seconds=60.0)),
    ):
        record.advance(NOW + second)
        record.submit(gang, 1000.0)
        record.settle()
    record.writer.close()
    return record


def by_command(*arguments: str) -> str:
    command = [sys.executable, "-m", "bireme.cli", *arguments]
    # A program of its own: Playwright has taken the event loop of this one.
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_what_if_is_answered_in_the_words_of_the_command_line(
    browser: Browser, tmp_path: Path
) -> None:
    folder = str(a_line(tmp_path / "record").folder)
    with board(folder, log=tmp_path / "ui.log") as address:
        visitor = Visitor(browser, address)
        page = visitor.open("/job/default/short")
        assert "Replicas of worker, now 8" in visitor.text("form.question")
        # By the keyboard alone: a field, its value, Enter.
        page.focus("[id='replicas.worker']")
        page.keyboard.type("4")
        page.focus("#try")
        page.keyboard.type("replicas=2")
        page.keyboard.press("Enter")
        page.wait_for_selector("#told")
        asked = ("why", "short", "-n", "default", "--record", folder)
        told = by_command(*asked, "--what-if", "replicas.worker=4", "--try", "replicas=2")
        assert visitor.text("#told").strip() == told.strip()
        assert "TrainingJob default/short: 4 worker" in told
        assert page.input_value("[id='replicas.worker']") == "4", "to be changed and asked again"
        visitor.judge(urlsplit(page.url)._replace(scheme="", netloc="").geturl())
        assert visitor.faults == []

        # Without a script, and of an earlier cycle.
        state = page.context.storage_state()
        plain = browser.new_context(java_script_enabled=False, storage_state=state).new_page()
        plain.goto(f"{visitor.base}/job/default/short?cycle=3")
        plain.fill("#class", "high")
        plain.click("form.question button")
        fault = "class: a record holds no PriorityClass; state the value of this one"
        assert fault in plain.inner_text("#fault")
        plain.fill("#class-value", "1000")
        plain.click("form.question button")
        plain.wait_for_selector("#told")
        assert "queue default, priority 1000" in plain.inner_text("#told")
        assert plain.url.endswith("cycle=3")
        for given, words in (
            ("estimate=soon", "estimate: 'soon'"),
            ("replicas.worker=many", "replicas.worker: 'many' is not a whole number"),
            ("replicas.chief=1", "replicas: short has no task 'chief'"),
            ("try=queue", "'queue' is no option; write name=value"),
            ("class=high&class-value=top", "class-value: 'top' is not a whole number; write one"),
            ("queue=lost", "queue: there is no queue 'lost'"),
        ):
            plain.goto(f"{visitor.base}/what-if/default/short?seconds=1&{given}")
            assert words in plain.inner_text("#fault")
        plain.goto(f"{visitor.base}/what-if/default/long?seconds=1")
        assert "has its places already" in plain.inner_text("#fault")


def test_each_cycle_of_a_record_is_shown_with_what_came_before_and_may_follow(
    browser: Browser, tmp_path: Path
) -> None:
    record = world(tmp_path / "record", nodes=1)
    arrivals = {
        0: (a_gang("early", a_task(8), estimated_seconds=30.0), 30.0),
        40: (a_gang("long", a_task(8), estimated_seconds=600.0), 600.0),
        60: (a_gang("short", a_task(8), estimated_seconds=60.0), 60.0),
        80: (a_gang("huge", a_task(9)), 1.0),
    }
    record.decide()
    for second in range(0, 100, 20):
        record.advance(NOW + second)
        if second in arrivals:
            record.submit(*arrivals[second])
        record.settle()
    record.writer.close()
    with board(str(tmp_path / "record"), log=tmp_path / "ui.log") as address:
        visitor = Visitor(browser, address)
        page = visitor.page
        # Who waits, and when they should start: it is added once it is foreseen.
        page.wait_for_selector("text=in 10 min", timeout=PATIENCE_MS)
        assert (
            "8 GPUs in use of 8 on 1 of 1 nodes; 1 job runs, 2 wait for 17 GPUs." in visitor.text()
        )
        visitor.open("/timeline")
        page.click("summary")
        rows = page.inner_text("details").splitlines()
        ended, runs, expected = (
            next(r for r in rows if n in r) for n in ("early", "long", "short")
        )
        assert "ran from 2001-09-09T01:46:40Z to 2001-09-09T01:47:20Z" in ended
        assert "runs since 2001-09-09T01:47:20Z, expected to end 2001-09-09T01:57:20Z" in runs
        assert "expected to start 2001-09-09T01:57:20Z" in expected
        visitor.open("/job/default/short")
        assert "kept for it: node n000" in visitor.text("#why")
        assert "Logs" in visitor.text(".remark")
        # An earlier cycle is another page, and stays one from page to page.
        page.click("text=first")
        assert "There is no job default/short." in visitor.text()
        page.click("text=Running")
        assert page.url.endswith("/running?cycle=0")
        visitor.open("/running?cycle=1")
        assert "default/early" in visitor.text()
        for path in (*PAGES, "/job/default/short", "/job/default/gone"):
            visitor.judge(path)
        # What is not there is a page too, and the browser says that it was not found.
        missing = "Failed to load resource: the server responded with a status of 404 (Not Found)"
        assert set(visitor.faults) == {missing}


def test_a_page_of_five_thousand_gangs_takes_less_than_a_second(
    browser: Browser, tmp_path: Path
) -> None:
    record = world(tmp_path / "record", nodes=100)
    for number in range(5100):
        gang = a_gang(f"g{number:04}", a_task(8), namespace=f"t{number % 20}")
        record.submit(gang, 1e6)
    record.decide()
    record.settle()
    record.writer.close()
    with board(str(tmp_path / "record"), log=tmp_path / "ui.log") as address:
        visitor = Visitor(browser, address)
        assert "5000 wait" in visitor.text()

        def seconds(path: str) -> float:
            before = processor_seconds()
            visitor.open(path)
            return processor_seconds() - before

        for path in (*PAGES, "/waiting?page=50", "/waiting?find=t7/", "/job/t0/g5000"):
            # Of a processor, as other tests run beside. It foresees once, in one of the three.
            assert min(seconds(path) for _ in range(3)) < 1.0, path
            elements = visitor.page.evaluate("document.querySelectorAll('*').length")
            assert elements < MAX_ELEMENTS, path
