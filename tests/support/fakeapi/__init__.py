"""An API server in miniature, in process, for tests of everything that talks to one.

It keeps what watchers and writers rely on (versions, history, 410, preconditions, pages, the
status subresource, bookmarks) and nothing else: no schemas, no admission, no controllers. Those
are tested against a real API server. See :class:`tests.support.fakeapi.server.FakeApi`.
"""

from tests.support.fakeapi.faults import Fault, FaultScript, lists, watches, writes
from tests.support.fakeapi.server import FakeApi
from tests.support.fakeapi.store import Refusal

__all__ = ["FakeApi", "Fault", "FaultScript", "Refusal", "lists", "watches", "writes"]
