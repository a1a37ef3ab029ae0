"""Log lines stay one JSON object each, whatever comes from the cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.logs import to_ascii_json

NASTY = "\x1b[2J\x07\x7f\x9b31m\u202e\u2028line\nbreak [bold]"


@given(st.text())
def test_any_text_is_one_line_of_printable_ascii(text: str) -> None:
    line = to_ascii_json({"event": text})
    assert all(" " <= character <= "~" for character in line)
    assert json.loads(line) == {"event": text}


def test_libraries_and_exceptions_go_through_the_same_renderer() -> None:
    program = f"""
import logging, structlog
from bireme import logs
logs.configure("info")
for library in ("kopf", "asyncio", "aiohttp", "uvicorn.error"):
    logging.getLogger(library).warning("from %s", {NASTY!r})
    logging.getLogger(library).info("hidden")
structlog.get_logger("ours").info("shown", message={NASTY!r})
structlog.get_logger("ours").debug("hidden")
try:
    raise ValueError({NASTY!r})
except ValueError:
    structlog.get_logger("ours").exception("failed")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b""
    lines = done.stderr.decode("ascii").splitlines()
    assert "\x7f" not in "".join(lines)
    events = [json.loads(line) for line in lines]
    assert [event["event"] for event in events] == [f"from {NASTY}"] * 4 + ["shown", "failed"]
    assert events[4]["message"] == NASTY
    assert "ValueError" in events[5]["exception"]
    assert {event["level"] for event in events} == {"warning", "info", "error"}


@pytest.mark.parametrize("program", ["operator", "extender"])
def test_a_program_that_cannot_use_its_settings_says_so_in_one_line_and_ends_with_two(
    program: str, tmp_path: Path
) -> None:
    env = {**os.environ, "BIREME_LOG_LEVEL": "loud\x7f", "KUBECONFIG": str(tmp_path / "none")}
    command = [sys.executable, "-m", f"bireme_{program}"]
    done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.decode("ascii").splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"]) == ("cannot start", "error")
    assert event["error"].startswith("log_level is 'loud\\x7f'; it must be one of debug")
