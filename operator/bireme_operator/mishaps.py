"""Errors of the operator's own code about one object: told, waited out, and nothing else stops.

No input should cause one. But one that escaped would end the process, and the next leader would
read the same object and end too. So whatever is done about one object is done in :meth:`about`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from bireme.core.errors import told
from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.kube.client import NotLeader
from bireme.kube.conditions import cleaned
from bireme_operator.actuator import Actuator
from bireme_operator.metrics import Metrics
from bireme_operator.reports import Reports

_log = structlog.get_logger(__name__)


class Mishaps:
    """Those of one term. A gang that has had one is left alone for ever longer pauses."""

    def __init__(self, actuator: Actuator, reports: Reports, metrics: Metrics) -> None:
        self._actuator = actuator
        self._state = actuator.state
        self._reports = reports
        self._metrics = metrics

    @contextmanager
    def about(self, key: Key) -> Iterator[None]:
        """Work on the gang ``key`` alone, whose failure is that gang's."""
        try:
            yield
        except NotLeader:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it is about this gang alone
            self.note(key, error)

    def note(self, key: Key, error: Exception) -> None:
        """``error`` was met at the gang ``key``; during its pause that is known already."""
        if not self._actuator.back_offs.are_over(key):
            return
        _log.error("an object was not understood", object=key, exc_info=error)
        self._metrics.mishaps.inc()
        self._actuator.back_off(key, error)
        self._say(key, cleaned(f"the operator failed on this object: {told(error)}"))

    def _say(self, key: Key, message: str) -> None:
        job, group = self._state.jobs.get(key), self._state.groups.get(key)
        holds = group is not None and group.plan is not None
        reason = Reason.OPERATOR_FAILED
        if job is not None and not holds and job.phase in ("Pending", "Restarting"):
            said = {"phase": job.phase, "reason": reason.value, "message": message}
            self._reports.offer_job(job, {**job.status, **said})
        elif job is not None:
            self._reports.tell("TrainingJob", key, job.uid, reason, message)
        elif group is not None:
            self._reports.tell("PodGroup", key, group.uid, reason, message)
