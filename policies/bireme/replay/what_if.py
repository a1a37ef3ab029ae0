"""What-if questions about the last cycle of a record, or of a leader: as plain data, and answered.

A person asks (:class:`Asked`); the program with the cycle adds what it knows (:class:`Known`),
and :mod:`bireme.core.what_if` answers. Both can be sent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import msgspec

from bireme.core.gangs import Gang
from bireme.core.policy import Policy
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.what_if import (
    Answer,
    Change,
    PriorityClass,
    WhatIfError,
    apply_change,
    ask,
    find_waiting,
    with_gang,
)
from bireme.kube import quantities, training_jobs, wire
from bireme.kube.conditions import cleaned
from bireme.kube.tenancy import fault_of_queue

MAX_JOBS: Final = 20
"""Manifests of one question that is sent."""
_MAX_REPLICAS: Final = 100_000

# --- what is asked ---


class NamedChange(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A :class:`bireme.core.what_if.Change` as a person writes it: its PriorityClass by name.

    Attributes:
        replicas: By task name; "" stands for the only task, or the only one of workers.
        queue, priority_class: "" leaves them.
        estimated_seconds: None leaves it.
    """

    replicas: dict[str, Annotated[int, msgspec.Meta(ge=1, le=_MAX_REPLICAS)]] = {}
    queue: str = ""
    priority_class: str = ""
    estimated_seconds: float | None = None


class Asked(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What a person asks: about jobs as they would be submitted, or about one that waits.

    Attributes:
        manifests: TrainingJobs that would be submitted together, each sound on its own.
        kind, name: Of the gang that waits, where there are no manifests.
        namespace: That of the gang, and of manifests that say none; "" for none given.
        change: What would be different about it.
        tries: Changes to try beside the usual ones.
        seconds: The longest that is tried what would be sooner.
    """

    manifests: list[dict[str, Any]] = []
    kind: str = "TrainingJob"
    name: str = ""
    namespace: str = ""
    change: NamedChange = NamedChange()
    tries: list[NamedChange] = []
    seconds: float = 60.0

    def namespace_of(self, manifest: Mapping[str, Any]) -> str:
        """Return the namespace in which ``manifest`` would be created."""
        about = manifest.get("metadata")
        named = about.get("namespace") if isinstance(about, Mapping) else None
        return str(named or self.namespace or "default")

    @property
    def namespaces(self) -> set[str]:
        """The namespaces asked about."""
        if not self.manifests:
            return {self.namespace}
        return {self.namespace_of(manifest) for manifest in self.manifests}


class Known(msgspec.Struct, frozen=True):
    """What a snapshot does not hold.

    Attributes:
        classes: PriorityClasses by name.
        default_class: The class of gangs that name none; None for priority 0.
        default_queues: By namespace, the queue of its gangs that name none; None where labels of
            namespaces are not known.
        topology_levels: Label keys, as in the settings.
        readable: The namespaces whose gangs may be named; None for all.
        no_class: What to do about a class that is not among them; NAME stands for its name.
    """

    classes: dict[str, PriorityClass] = {}
    default_class: PriorityClass | None = None
    default_queues: dict[str, str] | None = None
    topology_levels: tuple[str, ...] = ()
    readable: frozenset[str] | None = None
    no_class: str = "there is no PriorityClass NAME; name one that exists"

    def class_of(self, name: str, where: str) -> PriorityClass:
        """Return the class; WhatIfError begins with ``where``."""
        if name not in self.classes:
            raise WhatIfError(f"{where}: {self.no_class.replace('NAME', cleaned(name))}")
        return self.classes[name]

    def resolved(self, change: NamedChange) -> Change:
        """Return ``change`` with its class; WhatIfError where there is none of that name."""
        named = change.priority_class
        return Change(
            replicas=change.replicas,
            queue=change.queue,
            priority_class=self.class_of(named, "class") if named else None,
            estimated_seconds=change.estimated_seconds,
        )


# --- what is answered ---


class Told(msgspec.Struct, frozen=True):
    """An answer, and what it leaves out, in sentences."""

    answer: Answer
    remarks: list[str] = []


class WhatIfQuestion(msgspec.Struct, frozen=True, tag_field="kind", tag="whatIf"):
    """What if? Answered by a :class:`WhatIfAnswer`."""

    asked: Asked
    known: Known


class WhatIfAnswer(msgspec.Struct, frozen=True):
    """One answer for each manifest, or one for the gang that waits; or why there is none.

    Attributes:
        told: The answers.
        refusal: Names the field, its value and the remedy; "" where the question is answered.
    """

    told: list[Told] = []
    refusal: str = ""


def answers(
    asked: Asked,
    known: Known,
    snapshot: ClusterSnapshot,
    policy: Policy,
    clock: Callable[[], float],
) -> list[Told]:
    """Return the answers on ``snapshot``; ``clock`` gives monotonic seconds.

    Raises WhatIfError where the question cannot be asked.
    """
    until = clock() + asked.seconds
    change = known.resolved(asked.change)
    tries = [known.resolved(each) for each in asked.tries]
    gangs, snapshot = gangs_of(asked, known, snapshot)
    return [
        Told(
            ask(
                *(snapshot, policy, gang, change, tries),
                readable=known.readable,
                is_time_left=lambda: clock() < until,
            ),
            list(remarks),
        )
        for gang, remarks in gangs
    ]


def gangs_of(
    asked: Asked, known: Known, snapshot: ClusterSnapshot
) -> tuple[list[tuple[Gang, Sequence[str]]], ClusterSnapshot]:
    """Return the gangs asked about, each with remarks, and the snapshot in which they wait."""
    if not asked.manifests:
        key = (asked.namespace, asked.name)
        return [(find_waiting(snapshot, key, asked.kind, known.readable), ())], snapshot
    gangs: list[tuple[Gang, Sequence[str]]] = []
    for manifest in asked.manifests:
        gang, remarks = _from_manifest(manifest, snapshot, asked, known)
        snapshot = with_gang(snapshot, gang)
        gangs.append((gang, remarks))
    return gangs, snapshot


def check_changes(
    gangs: Sequence[tuple[Gang, Sequence[str]]],
    snapshot: ClusterSnapshot,
    change: Change,
    tries: Sequence[Change],
) -> None:
    """Raise WhatIfError where ``change``, or one of ``tries`` on top of it, cannot be made."""
    for gang, _ in gangs:
        asked = apply_change(gang, change, snapshot)
        for each in tries:
            apply_change(asked, each, snapshot)


# --- a manifest as a gang ---


def _from_manifest(
    manifest: Mapping[str, Any], snapshot: ClusterSnapshot, asked: Asked, known: Known
) -> tuple[Gang, list[str]]:
    """Return the TrainingJob as it would wait from now on, and what is not minded about it."""
    about, spec = manifest.get("metadata"), manifest.get("spec") or {}
    if not isinstance(about, Mapping):
        raise WhatIfError("metadata.name: is missing; give the TrainingJob a name")
    namespace = asked.namespace_of(manifest)
    name = about.get("name") or f"{about.get('generateName')}xxxxx"
    written = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}/{name}",  # a UID of Kubernetes has no slash
            "creationTimestamp": quantities.format_timestamp(snapshot.now),
        },
        "spec": spec,
    }
    where = f"TrainingJob {cleaned(str(name))}"
    try:
        read = msgspec.json.decode(msgspec.json.encode(written), type=wire.CustomObject)
    except msgspec.ValidationError as error:
        raise WhatIfError(f"{where}: {error}; correct the manifest") from error
    default_queue = (known.default_queues or {}).get(namespace, "")
    job = training_jobs.from_manifest(read, known.topology_levels, default_queue=default_queue)
    is_open = {queue.name: queue.is_open for queue in snapshot.queues.values()}
    # Who may not read everything is told of no queue that they have not named.
    problem = fault_of_queue(job.queue, is_open, names_others=known.readable is None)
    if problem and job.queue:
        raise WhatIfError(f"{where}: {problem}")
    named, class_ = job.priority_class, known.default_class
    if named is not None:
        class_ = known.class_of(named, f"{where}: spec.priorityClassName")
    gang = job.gang(
        class_.value if class_ is not None else 0,
        may_preempt=class_ is None or class_.may_preempt,
    )
    return replace(gang, arrived=snapshot.now), list(_remarks(job, snapshot, known))


def _remarks(job: training_jobs.JobFacts, snapshot: ClusterSnapshot, known: Known) -> Iterator[str]:
    spec, namespace = job.spec, job.key[0]
    if spec is not None and not spec.queue and known.default_queues is None:
        yield f"spec.queue names none: {job.queue} is assumed, as for namespaces without a label"
    if job.is_suspended:
        yield "spec.runPolicy.suspend is true: the answer is of the time when it is resumed"
    if job.has_claims:
        yield "what its claims of volumes and devices ask of nodes is not minded"
    if any(key[0] == namespace for key in snapshot.quotas):
        yield f"ResourceQuotas of namespace {namespace} are not minded"
