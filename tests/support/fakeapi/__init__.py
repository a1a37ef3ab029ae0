"""An API server in miniature, in process: versions, history, preconditions, pages, status, watches.

It has no schemas, admission or controllers, which are tested against a real API server. See
:class:`tests.support.fakeapi.server.FakeApi`.
"""

from tests.support.fakeapi.faults import Fault, FaultScript, lists, watches, writes
from tests.support.fakeapi.server import FakeApi
from tests.support.fakeapi.store import Refusal

__all__ = ["FakeApi", "Fault", "FaultScript", "Refusal", "lists", "watches", "writes"]
