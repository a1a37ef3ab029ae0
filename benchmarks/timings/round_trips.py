"""Round trips over one kept connection, timed by a client that does as little as possible.

Plain blocking sockets on a core of its own, because the client's work is in every number.
"""

import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing


class RoundTripError(Exception):
    """The server answered something else than 200 with a body of known length."""


def pin(pid: int, core: int | None) -> None:
    """Keep a process (0: this thread) on one core (None: let it have all), on Linux."""
    cores = range(os.cpu_count() or 1)
    if sys.platform == "linux" and (core is None or core in cores):
        os.sched_setaffinity(pid, cores if core is None else {core})


def request(path: str, body: bytes) -> bytes:
    """Return the request as kube-scheduler's Go client sends it, in one piece."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n"
        "Accept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


def reply_of(port: int, sent: bytes) -> bytes:
    with closing(_connect(port)) as connection:
        return _exchange(connection, sent)


def timed(ports: Sequence[int], sent: Sequence[bytes], rounds: int) -> list[list[float]]:
    """Time round trips by port; the servers are asked in turn, a few calls at a time.

    Each is sent all of ``sent``, one after another, and again from the first.
    """
    seconds: list[list[float]] = [[] for _ in ports]
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(_connect(port))) for port in ports]
        for turn in range(rounds):
            for taken, connection in zip(seconds, connections, strict=True):
                for call in range(10):
                    question = sent[(10 * turn + call) % len(sent)]
                    began = time.perf_counter()
                    _exchange(connection, question)
                    if turn:  # the first turn warms up
                        taken.append(time.perf_counter() - began)
    return seconds


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    # Nagle's algorithm would hold small requests back and time itself.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _exchange(connection: socket.socket, sent: bytes) -> bytes:
    connection.sendall(sent)
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        received += _more(connection)
    head = received[:end].lower()
    length = head.partition(b"content-length:")[2].partition(b"\r")[0].strip()
    if not head.startswith(b"http/1.1 200") or not length:
        raise RoundTripError(f"the server answered {received[:200]!r}")
    parts, missing = [received[end + 4 :]], int(length) - len(received) + end + 4
    while missing > 0:
        parts.append(_more(connection))
        missing -= len(parts[-1])
    return b"".join(parts)


def _more(connection: socket.socket) -> bytes:
    received = connection.recv(1 << 18)
    if not received:
        raise RoundTripError("the server hung up in the middle of an answer")
    return received
