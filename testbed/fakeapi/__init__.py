"""An API server in miniature, in process: versions, history, preconditions, pages, status, watches.

It has no schemas and no controllers, which are tested against a real API server. Creations are
judged by the chart's policy on tickets. See :class:`testbed.fakeapi.server.FakeApi`.
"""

from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.faults import Fault, FaultScript, lists, watches, writes
from testbed.fakeapi.server import FakeApi

__all__ = ["ApiRefusal", "FakeApi", "Fault", "FaultScript", "lists", "watches", "writes"]
