"""Colours and the live screen, as a terminal gets them."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from bireme.cli import colours, main
from bireme.core.reasons import Attention, Reason
from bireme.kube import names
from testbed.fakeapi import FakeApi

JOBS = names.path("trainingjobs")
RED, GREEN, YELLOW = "\x1b[31m", "\x1b[32m", "\x1b[33m"


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> str:
    return str(api.kubeconfig(tmp_path))


def put(api: FakeApi, name: str, phase: str, reason: str) -> None:
    status = {"phase": phase, "reason": reason, "gpus": 8}
    body: dict[str, Any] = {"metadata": {"name": name, "namespace": "default"}, "status": status}
    api.store.create(JOBS, ("default", name), {**body, "spec": {}})


async def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert await asyncio.to_thread(main, arguments) == 0
    return capsys.readouterr().out


def _as_in_front() -> None:
    # Shells have programs in the background ignore Ctrl-C, and so would all that these start.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def on_a_terminal(*arguments: str, until: bytes, **env: str) -> str:
    """What a terminal of 40 columns gets from the command, interrupted after ``until``."""
    master, slave = os.openpty()
    os.set_blocking(master, False)
    command = (sys.executable, "-m", "bireme.cli", *arguments)
    size = {"COLUMNS": "40", "LINES": "12", "TERM": "xterm"}
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    program = await asyncio.create_subprocess_exec(
        *command, stdout=slave, env={**inherited, **size, **env}, preexec_fn=_as_in_front
    )
    os.close(slave)
    got = b""
    async with asyncio.timeout(60):
        while True:
            await asyncio.sleep(0.05)
            try:
                got += os.read(master, 65536)
            except BlockingIOError:
                pass
            except OSError:  # all has been read, and nobody writes any more
                break
            if until in got and program.returncode is None:
                program.send_signal(signal.SIGINT)
                until = b"never"
        await program.wait()
    os.close(master)
    return got.decode()


async def test_reasons_have_colours_that_move_no_column(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "bad", "Pending", "NeverFits")
    put(api, "good", "Running", "GangRunning")
    put(api, "waits", "Pending", "WaitingForCapacity")
    asked = ("list", "--kubeconfig", kubeconfig)
    plain, colour = await shown(capsys, *asked), await shown(capsys, *asked, "--color=always")
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", colour) == plain
    for word, code in (("NeverFits", RED), ("Running", GREEN), ("WaitingForCapacity", YELLOW)):
        assert f"{code}{word}\x1b[0m" in colour
    assert f"{RED}NeverFits\x1b[0m\n" in await shown(
        capsys, "why", "bad", "--kubeconfig", kubeconfig, "--color=always"
    )
    assert "\x1b" not in await shown(capsys, *asked, "--color=always", "-o=json")


async def test_a_terminal_gets_colours_unless_it_wants_none(api: FakeApi, kubeconfig: str) -> None:
    put(api, "good", "Running", "GangRunning")
    asked = ("list", "--kubeconfig", kubeconfig)
    assert GREEN in await on_a_terminal(*asked, until=b"never")
    assert "\x1b" not in await on_a_terminal(*asked, until=b"never", NO_COLOR="1")
    assert "\x1b" not in await on_a_terminal(*asked, until=b"never", TERM="dumb")
    assert GREEN in await on_a_terminal(*asked, "--color=always", until=b"never", NO_COLOR="1")


async def test_watched_queue_draws_over_what_it_drew_and_leaves_the_terminal_as_it_was(
    api: FakeApi, kubeconfig: str
) -> None:
    put(api, "a-job-with-a-name-that-is-longer-than-the-terminal", "Running", "GangRunning")
    asked = ("queue", "--watch", "--kubeconfig", kubeconfig)
    until = b"\x1b[J\x1b[H"  # the second picture begins
    got = await on_a_terminal(*asked, until=until)
    assert got.startswith("\x1b[?1049h\x1b[?25l\x1b[H")
    assert got.endswith("\x1b[?25h\x1b[?1049l")
    assert got.count("\x1b[J") == got.count("\x1b[H")
    assert "\x1b[2J" not in got
    first = got.split("\x1b[J")[0]
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in first.split("\r\n")]
    assert max(map(len, lines)) == 40


def test_a_line_is_cut_by_what_is_seen_of_it() -> None:
    line = f"ab {RED}Failed\x1b[0m more"
    assert colours.cut(line, 5) == f"ab {RED}Fa\x1b[0m"
    assert colours.cut("plain", 3) == "pla"


def test_every_reason_has_the_colour_of_its_attention_and_no_word_has_two() -> None:
    for reason in Reason:
        assert colours._paint_text(reason.value) != reason.value, reason
        if reason.attention is Attention.PERSON:
            assert colours._paint_text(reason.value).startswith(RED), reason
    states = [(word, each) for each, words in colours._PHASES.items() for word in words]
    for word, attention in states:
        assert word not in set(Reason) or Reason(word).attention is attention, word
    assert len(dict(states)) == len(states)
