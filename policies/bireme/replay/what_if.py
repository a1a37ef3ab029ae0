"""What-if questions about the last cycle of a record, or of a leader: as plain data, with answers.

A person asks (:class:`Inquiry`), the program with the cycle adds its own facts (:class:`Known`),
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
    GangChange,
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
"""Maximum number of manifests in one question that is sent."""
_MAX_REPLICAS: Final = 100_000

# --- the question ---


class NamedChange(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A :class:`bireme.core.what_if.GangChange` as a person writes it; it names its PriorityClass.

    Attributes:
        replicas: Replicas by task name; "" stands for the only task, or the only one of workers.
        queue, priority_class: "" changes nothing.
        estimated_seconds: None changes nothing.
    """

    replicas: dict[str, Annotated[int, msgspec.Meta(ge=1, le=_MAX_REPLICAS)]] = {}
    queue: str = ""
    priority_class: str = ""
    estimated_seconds: float | None = None


class Inquiry(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A question about jobs as they would be submitted, or about a waiting gang.

    Attributes:
        manifests: TrainingJobs that would be submitted together, each sound on its own.
        kind, name: Those of the waiting gang, if there are no manifests.
        namespace: Namespace of the gang, and of manifests without one; "" if none is given.
        change: The change of the gang to assume.
        tries: Changes to try as well as the usual ones.
        seconds: Time limit for trying changes.
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
        """The namespaces of the question."""
        if not self.manifests:
            return {self.namespace}
        return {self.namespace_of(manifest) for manifest in self.manifests}


class Known(msgspec.Struct, frozen=True):
    """Facts that a snapshot does not hold.

    Attributes:
        classes: PriorityClasses by name.
        default_class: The class of gangs that name none; None for priority 0.
        default_queues: Default queue by namespace; None if the labels of namespaces are unknown.
        topology_levels: Label keys, as in the settings.
        readable: The namespaces whose gangs may be named; None for all.
        no_class: The remedy for a class that is not among them; NAME stands for its name.
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

    def resolve(self, change: NamedChange) -> GangChange:
        """Return ``change`` with its class; WhatIfError if no class has that name."""
        named = change.priority_class
        return GangChange(
            replicas=change.replicas,
            queue=change.queue,
            priority_class=self.class_of(named, "class") if named else None,
            estimated_seconds=change.estimated_seconds,
        )


# --- the answer ---


class Told(msgspec.Struct, frozen=True):
    """An answer, and the facts that it ignores, in sentences."""

    answer: Answer
    remarks: list[str] = []


class WhatIfQuestion(msgspec.Struct, frozen=True, tag_field="kind", tag="whatIf"):
    """What if? Answered by a :class:`WhatIfAnswer`."""

    asked: Inquiry
    known: Known


class WhatIfAnswer(msgspec.Struct, frozen=True):
    """One answer for each manifest, or one for the waiting gang; or a refusal.

    Attributes:
        told: The answers.
        refusal: Names the field, its value and the remedy; "" if the question is answered.
    """

    told: list[Told] = []
    refusal: str = ""


def answers(
    question: Inquiry,
    facts: Known,
    snapshot: ClusterSnapshot,
    policy: Policy,
    clock: Callable[[], float],
) -> list[Told]:
    """Return the answers on ``snapshot``; ``clock`` gives monotonic seconds.

    Raises WhatIfError if the question is not valid.
    """
    until = clock() + question.seconds
    change = facts.resolve(question.change)
    tries = [facts.resolve(named_change) for named_change in question.tries]
    gangs, snapshot = gangs_of(question, facts, snapshot)
    return [
        Told(
            ask(
                snapshot,
                policy,
                gang,
                change,
                tries,
                readable=facts.readable,
                is_time_left=lambda: clock() < until,
            ),
            list(remarks),
        )
        for gang, remarks in gangs
    ]


def gangs_of(
    question: Inquiry, facts: Known, snapshot: ClusterSnapshot
) -> tuple[list[tuple[Gang, Sequence[str]]], ClusterSnapshot]:
    """Return the gangs of the question, each with remarks, and the snapshot in which they wait."""
    if not question.manifests:
        key = (question.namespace, question.name)
        return [(find_waiting(snapshot, key, question.kind, facts.readable), ())], snapshot
    gangs: list[tuple[Gang, Sequence[str]]] = []
    for manifest in question.manifests:
        gang, remarks = _from_manifest(manifest, snapshot, question, facts)
        snapshot = with_gang(snapshot, gang)
        gangs.append((gang, remarks))
    return gangs, snapshot


def check_changes(
    gangs: Sequence[tuple[Gang, Sequence[str]]],
    snapshot: ClusterSnapshot,
    change: GangChange,
    tries: Sequence[GangChange],
) -> None:
    """Raise WhatIfError if ``change``, or one of ``tries`` on top of it, cannot be made."""
    for gang, _ in gangs:
        changed_gang = apply_change(gang, change, snapshot)
        for trial in tries:
            apply_change(changed_gang, trial, snapshot)


# --- a manifest as a gang ---


def _from_manifest(
    manifest: Mapping[str, Any], snapshot: ClusterSnapshot, question: Inquiry, facts: Known
) -> tuple[Gang, list[str]]:
    """Return the TrainingJob as it would wait from now on, and remarks on its ignored parts."""
    about, spec = manifest.get("metadata"), manifest.get("spec") or {}
    if not isinstance(about, Mapping):
        raise WhatIfError("metadata.name: is missing; give the TrainingJob a name")
    namespace = question.namespace_of(manifest)
    name = about.get("name") or f"{about.get('generateName')}xxxxx"
    document = {
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
        read = msgspec.json.decode(msgspec.json.encode(document), type=wire.CustomObject)
    except msgspec.ValidationError as error:
        raise WhatIfError(f"{where}: {error}; correct the manifest") from error
    default_queue = (facts.default_queues or {}).get(namespace, "")
    job = training_jobs.from_manifest(read, facts.topology_levels, default_queue=default_queue)
    is_open = {queue.name: queue.is_open for queue in snapshot.queues.values()}
    # The error names other queues only to callers that may read everything.
    problem = fault_of_queue(job.queue, is_open, names_others=facts.readable is None)
    if problem and job.queue:
        raise WhatIfError(f"{where}: {problem}")
    named, class_ = job.priority_class, facts.default_class
    if named is not None:
        class_ = facts.class_of(named, f"{where}: spec.priorityClassName")
    gang = job.gang(
        class_.value if class_ is not None else 0,
        may_preempt=class_ is None or class_.may_preempt,
    )
    return replace(gang, arrived=snapshot.now), list(_remarks(job, snapshot, facts))


def _remarks(job: training_jobs.JobFacts, snapshot: ClusterSnapshot, facts: Known) -> Iterator[str]:
    spec, namespace = job.spec, job.key[0]
    if spec is not None and not spec.queue and facts.default_queues is None:
        yield f"spec.queue names none: {job.queue} is assumed, as for namespaces without a label"
    if job.is_suspended:
        yield "spec.runPolicy.suspend is true: the answer is of the time when it is resumed"
    if job.has_claims:
        yield "what its claims of volumes and devices ask of nodes is not minded"
    if any(key[0] == namespace for key in snapshot.quotas):
        yield f"ResourceQuotas of namespace {namespace} are not minded"
