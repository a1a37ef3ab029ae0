"""An API server in miniature, in process: versions, history, preconditions, pages, status, watches.

It has no schemas, admission or controllers, which are tested against a real API server. See
:class:`testbed.fakeapi.server.FakeApi`.
"""

from testbed.fakeapi.faults import Fault, FaultScript, lists, watches, writes
from testbed.fakeapi.server import FakeApi
from testbed.fakeapi.store import Refusal

__all__ = ["FakeApi", "Fault", "FaultScript", "Refusal", "lists", "watches", "writes"]
