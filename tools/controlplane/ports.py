"""Free TCP ports on loopback, chosen so that clusters started side by side do not meet.

Ports lie below the range from which systems give outgoing connections their own port, so one that
was free when chosen stays free until its server binds it; random choice keeps two choosers apart.
"""

import random
import socket
from typing import Final

from tools.controlplane.errors import ControlPlaneError

FIRST: Final = 20000
LAST: Final = 31999
TRIES: Final = 1000


def free_ports(count: int) -> list[int]:
    """``count`` different ports that nothing listens on.

    Raises:
        ControlPlaneError: so many are taken that a thousand tries found too few.
    """
    found: dict[int, None] = {}
    generator = random.SystemRandom()
    for _ in range(TRIES):
        port = generator.randint(FIRST, LAST)
        if is_free(port):
            found[port] = None
        if len(found) == count:
            return list(found)
    raise ControlPlaneError(
        f"found {len(found)} of {count} free ports in {FIRST}-{LAST}: stop unused clusters "
        "(python -m tools.controlplane list)"
    )


def is_free(port: int) -> bool:
    """Whether a server could bind ``port``, on loopback and on all addresses."""
    for address in ("127.0.0.1", "0.0.0.0"):  # noqa: S104  # only asks; nothing listens
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
