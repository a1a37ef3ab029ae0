"""Free ports for clusters that stand side by side."""

import socket

from tools.controlplane.ports import FIRST, LAST, free_ports, is_free


def test_ports_are_different_and_below_the_range_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(FIRST <= port <= LAST < 32768 for port in ports)


def test_port_with_a_listener_is_not_free() -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
    assert is_free(port)
