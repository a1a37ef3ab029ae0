"""Limit of the connections that are open at a port, in all and for each client address.

Every pod of a cluster reaches the progress endpoint, and any client that no NetworkPolicy keeps
away reaches the ports of metrics. A connection costs one of the process's file descriptors, which
the watches, the lease and every write need too. So connections are counted as they are accepted,
before TLS. A client above its limit loses its own oldest connection. The oldest of all is closed
only above the limit in all. A connection that answers an authenticated client is closed last:
an address may be that of a proxy, behind which one client must not cut off the others.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeAlias

from bireme.tasks import Tasks

MAX_OPEN: Final = 256
MAX_OF_ONE: Final = 16
"""From one address; a training pod needs one connection for a moment every ten seconds."""

Peer: TypeAlias = tuple[str, int]
"""Address and port of a client."""

_HANDSHAKE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1


class ConnectionLimiter:
    """Accepts a bounded number of connections for ``protocol``, with TLS if there is a context.

    ``max_of_one`` bounds those from one address; without it :data:`MAX_OF_ONE` does.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
        max_of_one: int | None = None,
    ) -> None:
        self._protocol = protocol
        self._tls = tls
        self._max_of_one = MAX_OF_ONE if max_of_one is None else max_of_one
        self._open: list[tuple[Peer, socket.socket]] = []
        self._answering: set[Peer] = set()
        self._tasks = Tasks()
        self._listening: socket.socket | None = None

    def open(self, host: str, port: int) -> int:
        """Listen on ``host:port`` and return the port.

        Raises:
            OSError: the port is taken, or the address is not this machine's.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=128)
        listening.setblocking(False)
        self._listening = listening
        self._tasks.start(self._accept(listening))
        return int(listening.getsockname()[1])

    def begin_answer(self, peer: Peer) -> None:
        """Mark that the connection of ``peer``, an authenticated client, is closed last."""
        self._answering.add(peer)

    def end_answer(self, peer: Peer) -> None:
        """Let the connection of ``peer`` be closed as any other again."""
        self._answering.discard(peer)

    async def close(self) -> None:
        """Accept no more connections; the protocol ends those that are open."""
        await self._tasks.close()
        if self._listening is not None:
            self._listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError:  # the client has gone, or no descriptor is free
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._make_room(peer[0])
            self._open.append((peer[:2], connection))
            self._tasks.start(self._connect(connection))

    def _make_room(self, address: str) -> None:
        self._open = [entry for entry in self._open if entry[1].fileno() >= 0]
        of_one = [entry for entry in self._open if entry[0][0] == address]
        crowd = of_one if len(of_one) >= self._max_of_one else self._open
        if crowd is of_one or len(crowd) >= MAX_OPEN:
            oldest = next((entry for entry in crowd if entry[0] not in self._answering), crowd[0])
            self._open.remove(oldest)
            with contextlib.suppress(OSError):
                # Its transport reads the end and closes the socket.
                oldest[1].shutdown(socket.SHUT_RDWR)

    async def _connect(self, connection: socket.socket) -> None:
        seconds = _HANDSHAKE_SECONDS if self._tls else None
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except (OSError, asyncio.CancelledError):
            connection.close()
