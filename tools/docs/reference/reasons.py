"""``docs/reference/reasons.md``: every reason and condition that Bireme writes.

Made from the members of :class:`bireme.core.reasons.Reason`.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from bireme.core.reasons import Reason
from bireme.kube.crd import KINDS, definition
from bireme_extender.membership import RefusalReason
from tools.docs.reference.tables import code, docstrings, table

_HEAD: Final = """# Reasons and conditions

Every word that Bireme gives as a reason, written by `make reference` from the code. Reasons are
API: alerts may count on them. The message beside one has the names and numbers; `bireme why NAME`
has the rest. Where a type of event is named, one is posted on the object, every five minutes at
most; on PodGroups only while they wait and when their pods are stopped.

## Conditions

{conditions}
To wait for the end of a job, in a script:

```sh
kubectl wait --for=condition=Finished btj/NAME --timeout=24h
```

`--for=condition=Succeeded` waits in vain where the job fails: it is False then.
"""
_GANGS: Final = """In `status.reason` and condition `Admitted` of TrainingJobs and PodGroups, and in
`bireme_gangs_waiting{reason}`. """
_SECTIONS: Final = (
    (Reason.QUEUE_NOT_FOUND, "Configuration faults", _GANGS + "Waiting does not resolve them."),
    (Reason.WAITING_FOR_CAPACITY, "Gangs that wait", _GANGS.strip()),
    (
        Reason.ADMITTED,
        "What becomes of gangs",
        """In `status.reason` and the conditions. Changes of a TrainingJob's phase are counted in
`bireme_job_transitions_total{phase,reason}`; `Grown` and `Shrunk` are events alone, counted in
`bireme_resizes_total{reason}`.""",
    ),
    (
        Reason.POLICY_LOADED,
        "SchedulingPolicies",
        """In the conditions `Loaded`, `Degraded`, `Promoted` and `RolledBack`.
Promotions and rollbacks are counted in `bireme_policy_promotions_total{reason}` and
`bireme_policy_rollbacks_total{reason}`.""",
    ),
    (
        Reason.FORECAST_ONLY,
        "NodePoolScalers: the floor",
        "In the condition `Scaling`, beside `SpecInvalid`.",
    ),
    (
        Reason.FORECAST_MADE,
        "NodePoolScalers: the forecast",
        "In the condition `Forecast`. The operator writes `Stale`, the nightly job all others.",
    ),
)
"""The first reason of each section, its title, and where they are written."""

_REFUSALS: Final = """
## Refusals of the extender

Why a pod gets no node. `kubectl describe pod` shows them in the event FailedScheduling of the
scheduler `bireme`, and `bireme_extender_refusals_total{reason}` counts them.

"""


def page() -> str:
    """Return the whole page; KeyError for a refusal without a docstring."""
    meanings = docstrings(RefusalReason)
    refusals = ((code(each.value), meanings[each.name]) for each in RefusalReason)
    return "".join(
        [
            _HEAD.format(conditions=table(("kind", "its conditions"), _conditions())),
            *_sections(),
            _REFUSALS,
            table(("reason", "means, and what helps"), refusals),
        ]
    )


def _conditions() -> Iterator[tuple[str, str]]:
    for kind in KINDS:
        made = definition(kind)["spec"]
        schema = made["versions"][0]["schema"]["openAPIV3Schema"]
        status = schema["properties"].get("status", {}).get("properties", {})
        if "conditions" in status:
            yield code(made["names"]["kind"]), status["conditions"]["description"]


def _sections() -> Iterator[str]:
    reasons = list(Reason)
    # A section reaches to the first reason of the next, so that a new reason falls into one.
    starts = [reasons.index(first) for first, _, _ in _SECTIONS]
    for (_, title, where), (start, end) in zip(
        _SECTIONS, pairwise([*starts, len(reasons)]), strict=True
    ):
        columns = ("reason", "event", "means", "what helps")
        rows = (
            (code(each.value), each.event or "", each.meaning, each.remedy)
            for each in reasons[start:end]
        )
        yield f"\n## {title}\n\n{where}\n\n{table(columns, rows)}"
