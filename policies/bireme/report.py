"""Report progress to Bireme from a training script. Standard library only; can be copied alone.

    from bireme.report import report

    for step, batch in enumerate(batches):
        loss = train(batch)
        report(step=step, total_steps=len(batches), loss=loss)

A call takes a few microseconds: a thread sends the latest numbers every ten seconds, and the last
numbers when the program ends. It never raises, and only rank 0 reports. Without an endpoint, as
outside a cluster, it sends nothing and logs that once.

Bireme sets ``BIREME_PROGRESS_URL``, ``BIREME_PROGRESS_TOKEN_FILE`` and, for a private certificate
authority, ``BIREME_PROGRESS_CA_FILE``. The report has the form of Kubeflow Trainer (KEP-2779).
"""

import atexit
import json
import logging
import math
import os
import ssl
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any, SupportsFloat
from urllib.parse import urlsplit

EVERY_SECONDS = 10.0
"""The pause between two reports."""
TIMEOUT_SECONDS = 5.0
MAX_PAUSE_SECONDS = 120.0
"""The longest pause between attempts while reports fail."""
_MAX_DOUBLINGS = 10
"""After so many failures the pause no longer grows, so that its power of two does not overflow."""

_log = logging.getLogger(__name__)


def report(
    *,
    step: SupportsFloat | None = None,
    total_steps: SupportsFloat | None = None,
    loss: SupportsFloat | None = None,
    accuracy: SupportsFloat | None = None,
    remaining_seconds: SupportsFloat | None = None,
    checkpoint: SupportsFloat | None = None,
    **metrics: SupportsFloat | None,
) -> bool:
    """Queue these numbers to be sent; fresher numbers replace them.

    Args:
        step: Steps done since training began, over all restarts.
        total_steps: Steps of the whole training.
        loss: Training loss.
        accuracy: From 0 to 1.
        remaining_seconds: Time until the end; estimated from the steps if left out.
        checkpoint: Steps that the last saved checkpoint holds. A job that reports one can resume,
            so Bireme may stop it for its equals.
        metrics: More numbers, by name.

    Returns:
        Whether the numbers were queued; never raises. False for ranks other than 0, without an
        endpoint, and without a finite number.
    """
    numbers = {
        "step": step,
        "total_steps": total_steps,
        "loss": loss,
        "accuracy": accuracy,
        "checkpoint": checkpoint,
        **metrics,
    }
    try:
        return _reporter.take(numbers, remaining_seconds)
    except Exception as error:  # noqa: BLE001  # a training must survive anything
        _reporter.warn_once(f"progress is not reported: {error!r}")
        return False


def finish(seconds: float = TIMEOUT_SECONDS) -> bool:
    """Send the queued report within about ``seconds``; return whether the queue is empty."""
    try:
        return _reporter.finish(seconds)
    except Exception as error:  # noqa: BLE001  # as above
        _reporter.warn_once(f"progress is not reported: {error!r}")
        return False


class _Reporter:
    """The latest report, and the thread that sends it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._changed = threading.Condition()
        self._latest: dict[str, Any] | None = None
        self._is_urgent = False
        self._is_sending = False
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._warned: set[str] = set()
        self._first: tuple[float, float] | None = None
        self._not_before = 0.0

    def take(
        self, values: Mapping[str, SupportsFloat | None], remaining: SupportsFloat | None
    ) -> bool:
        environment = self._environment
        # A forked child, such as a data loader's worker, has this object without its thread.
        if environment.get("RANK", "0") != "0" or os.getpid() != self._process:
            return False
        if not environment.get("BIREME_PROGRESS_URL"):
            self.warn_once("no progress is reported: BIREME_PROGRESS_URL is not set here")
            return False
        numbers = {name: _finite(value) for name, value in values.items()}
        numbers_given = {name: value for name, value in numbers.items() if value is not None}
        body = self._body(numbers_given, _finite(remaining))
        if not body:
            return False
        with self._changed:
            self._latest = body
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="bireme-report", daemon=True)
                thread.start()  # if no thread can start, there is nothing to finish either
                atexit.register(self.finish, TIMEOUT_SECONDS)
                self._thread = thread
            self._changed.notify_all()
        return True

    def _body(self, numbers: Mapping[str, float], remaining: float | None) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if numbers:
            body["metrics"] = [{"name": n, "value": repr(value)} for n, value in numbers.items()]
        step, total = numbers.get("step"), numbers.get("total_steps")
        if step is not None and total:
            body["progressPercentage"] = min(max(100 * step / total, 0.0), 100.0)
            remaining = self._guess(step, total) if remaining is None else remaining
        if remaining is not None:
            body["estimatedRemainingSeconds"] = max(0.0, remaining)
        return body

    def _guess(self, step: float, total: float) -> float | None:
        """Return the remaining seconds, at the pace since the first report of this process."""
        now = _now()
        if self._first is None or step < self._first[1]:
            self._first = (now, step)
        began, first = self._first
        return (total - step) * (now - began) / (step - first) if step > first else None

    def finish(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        with self._changed:
            self._is_urgent = True
            self._changed.notify_all()
            while (self._latest or self._is_sending) and self._is_urgent:
                if not self._changed.wait(until - time.monotonic()):
                    break
            self._is_urgent = False
            return not (self._latest or self._is_sending)

    def _run(self) -> None:
        failures = 0
        while True:
            body = self._next()
            pause = self._send(body)
            with self._changed:
                self._is_sending = False
                failures = 0 if pause is None else failures + 1
                if pause is None:
                    pause = EVERY_SECONDS
                else:
                    # Keep the report unless a fresher one has come. An urgent report, at the end
                    # of a program, is not sent again.
                    self._latest = self._latest or body
                    self._is_urgent = False
                    doubled = EVERY_SECONDS * 2.0 ** min(failures, _MAX_DOUBLINGS)
                    pause = min(max(pause, doubled), MAX_PAUSE_SECONDS)
                self._not_before = time.monotonic() + pause
                self._changed.notify_all()

    def _next(self) -> dict[str, Any]:
        """Wait until a report is due, and return it."""
        with self._changed:
            while True:
                wait = self._not_before - time.monotonic()
                if self._latest and (wait <= 0 or self._is_urgent):
                    body, self._latest = self._latest, None
                    self._is_sending = True
                    return body
                self._changed.wait(wait if self._latest else None)

    def _send(self, body: dict[str, Any]) -> float | None:
        """Send a report; return None if it was accepted, else the minimum pause before the next."""
        try:
            status, text, retry_after = self._post(json.dumps({"trainerStatus": body}).encode())
        except Exception as error:  # noqa: BLE001  # the thread survives anything
            self.warn_once(f"progress could not be reported: {error!r}")
            return 0.0
        if status < 300:
            return None
        if status not in (429, 503):
            self.warn_once(f"the progress endpoint refuses: {status} {text}")
        return float(retry_after) if retry_after.isdecimal() else 0.0

    def _post(self, body: bytes) -> tuple[int, str, str]:
        """Return status, text and Retry-After."""
        # Not urllib: the token must reach this address alone, without proxies or redirects.
        address = urlsplit(self._environment["BIREME_PROGRESS_URL"])
        file = self._environment.get("BIREME_PROGRESS_TOKEN_FILE")
        if not file:
            raise ValueError("BIREME_PROGRESS_TOKEN_FILE is not set; name the file with the token")
        token = Path(file).read_text(encoding="utf-8")
        headers = {"Authorization": f"Bearer {token.strip()}", "Content-Type": "application/json"}
        connection = self._connection(address.scheme, address.hostname or "", address.port)
        try:
            connection.request("POST", address.path, body, headers)
            answer = connection.getresponse()
            text = answer.read(1024).decode(errors="replace")
            return answer.status, text, answer.headers.get("Retry-After", "")
        finally:
            connection.close()

    def _connection(self, scheme: str, host: str, port: int | None) -> HTTPConnection:
        if scheme == "http":
            return HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        if scheme != "https":
            raise ValueError(f"BIREME_PROGRESS_URL has scheme {scheme!r}; it must be http or https")
        tls = ssl.create_default_context(cafile=self._environment.get("BIREME_PROGRESS_CA_FILE"))
        return HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=tls)

    def warn_once(self, text: str) -> None:
        """Log ``text`` the first time."""
        if text not in self._warned and len(self._warned) < 20:
            self._warned.add(text)
            _log.warning("%s", text)


def _finite(value: SupportsFloat | None) -> float | None:
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None


_now = time.monotonic
_reporter = _Reporter(os.environ)
