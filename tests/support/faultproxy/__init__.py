"""A plain-http reverse proxy in front of a real API server, where tests make things go wrong.

See :class:`tests.support.faultproxy.proxy.FaultProxy`.
"""

from tests.support.faultproxy.proxy import FaultProxy, Write, not_lease_nor_event

__all__ = ["FaultProxy", "Write", "not_lease_nor_event"]
