"""Round trips over one kept connection, timed by a client that does as little as possible.

Plain blocking sockets on a core of its own, because the client's work is in every number.
"""

import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import closing

import psutil


class RoundTripError(Exception):
    """The server answered something else than 200 with a body of known length."""


def pin(pid: int, core: int) -> None:
    """Keep a process (0: this thread) on one core, where the system can do that."""
    if sys.platform != "linux" or core >= (os.cpu_count() or 1):
        return
    if pid == 0:
        os.sched_setaffinity(0, {core})
    else:
        psutil.Process(pid).cpu_affinity([core])


def free(pid: int) -> None:
    if sys.platform == "linux":
        os.sched_setaffinity(pid, set(range(os.cpu_count() or 1)))


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


def timed(ports: Sequence[int], sent: bytes, rounds: int) -> list[list[float]]:
    """Time round trips by port; the servers are asked in turn, a few calls at a time."""
    connections = [_connect(port) for port in ports]
    seconds: list[list[float]] = [[] for _ in ports]
    try:
        for turn in range(rounds):
            for taken, connection in zip(seconds, connections, strict=True):
                for _ in range(10):
                    began = time.perf_counter()
                    _exchange(connection, sent)
                    if turn:  # the first turn warms up
                        taken.append(time.perf_counter() - began)
    finally:
        for connection in connections:
            connection.close()
    return seconds


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
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
