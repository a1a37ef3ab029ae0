"""Log lines stay one JSON object each, whatever comes from the cluster."""

import json
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from bireme_extender.logs import escaped

NASTY = "\x1b[2J\x07\x7f\x9b31m\u202e\u2028line\nbreak [bold]"


@given(st.text())
def test_any_text_is_one_line_of_printable_ascii(text: str) -> None:
    line = escaped({"event": text})
    assert all(" " <= character <= "~" for character in line)
    assert json.loads(line) == {"event": text}


def test_libraries_and_exceptions_go_through_the_same_renderer() -> None:
    program = f"""
import logging, structlog
from bireme_extender import logs
logs.configure("info")
logging.getLogger("aiohttp").warning("from %s", {NASTY!r})
structlog.get_logger("ours").info("hidden" if False else "shown", message={NASTY!r})
structlog.get_logger("ours").debug("hidden")
try:
    raise ValueError({NASTY!r})
except ValueError:
    structlog.get_logger("ours").exception("failed")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=True
    )
    lines = done.stdout.decode("ascii").splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["event"] for event in events] == [f"from {NASTY}", "shown", "failed"]
    assert events[1]["message"] == NASTY
    assert "ValueError" in events[2]["exception"]
    assert {event["level"] for event in events} == {"warning", "info", "error"}
