"""The socket of the board."""

import socket

import pytest

from bireme.cli.arguments import UsageError
from bireme.cli.ui import listen


def test_a_browser_may_be_faster_than_the_server() -> None:
    with listen(0) as found, socket.create_connection(found.getsockname(), timeout=5):
        pass


def test_a_port_that_is_taken_is_named_with_the_remedy() -> None:
    with listen(0) as found:
        port = found.getsockname()[1]
        with pytest.raises(UsageError, match=rf"--port: cannot listen on {port}: .*leave it out"):
            listen(port)
