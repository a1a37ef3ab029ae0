"""``bireme submit``: check manifests, send them and, on request, follow them until they run.

All manifests are checked first, here and by a dry run of the API server; with one error none is
sent. Any kind that the cluster serves may be among them; TrainingJobs and PodGroups are checked
here too. An error is a fault that the API server or the operator would refuse. A hint names
something allowed but seldom intended, such as a job without an estimated duration.

With ``--dry-run`` nothing is created: it says where and when the jobs would start.
"""

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pydantic

from bireme.cli import cluster as common
from bireme.cli import leader, manifest_files
from bireme.cli.arguments import Json, UsageError, add_what_if, naming
from bireme.cli.cluster import ClusterReader, ConsoleError, ask, refusal
from bireme.cli.gangs import ENDED_PHASES, GangLine, line_of
from bireme.core.times import duration
from bireme.kube import names, wire
from bireme.kube.api.base import ApiModel
from bireme.kube.api.pod_group import PodGroup
from bireme.kube.api.training_job import TrainingJob
from bireme.kube.client import ApiError
from bireme.kube.conditions import cleaned
from bireme.kube.tenancy import fault_of_queue

MODELS: Final[dict[str, type[ApiModel]]] = {"TrainingJob": TrainingJob, "PodGroup": PodGroup}
_VERSION: Final = re.compile(r"(?:[a-z0-9][a-z0-9.-]*/)?v[a-z0-9]+")
_OVERRULED: Final = {
    "nodeName": "the operator chooses the node",
    "priorityClassName": "all pods have the job's class (spec.priorityClassName)",
    "schedulingGates": "pods are created when they may start",
}


@dataclass(slots=True)
class Findings:
    """Errors and hints about one manifest, each with its field."""

    errors: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)


def lint(manifest: Json) -> Findings:
    """Check a manifest on its own."""
    findings = Findings()
    if fault := _fault_of_kind_or_name(manifest):
        findings.errors.append(fault)
        return findings
    if not _is_gang(manifest):
        return findings  # the API server knows its rules
    try:
        MODELS[manifest["kind"]].model_validate(manifest)
    except pydantic.ValidationError as error:
        findings.errors += [_problem(problem) for problem in error.errors()]
        return findings
    if manifest["kind"] == "TrainingJob":
        findings.hints += _hints(manifest.get("spec") or {})
    return findings


def lint_queue(name: str, queues: list[Json]) -> Iterator[str]:
    """Yield the reason why a gang cannot start in the queue ``name``."""
    states = {q["metadata"]["name"]: (q.get("spec") or {}).get("state") for q in queues}
    problem = fault_of_queue(
        name, {queue_name: state != "Closed" for queue_name, state in states.items()}
    )
    if problem:
        yield problem


def _fault_of_kind_or_name(manifest: Json) -> str:
    version = str(manifest.get("apiVersion") or "")
    if not _VERSION.fullmatch(version):
        excerpt = cleaned(ascii(version))[:80]
        return (
            f"apiVersion: {excerpt} is no group and version; write for example "
            f"{names.API_VERSION} or v1"
        )
    about = manifest.get("metadata") or {}
    if not about.get("name") and not about.get("generateName"):
        return f"metadata.name: is missing; give the {cleaned(manifest['kind'])} a name"
    return ""


def _is_gang(manifest: Json) -> bool:
    version = str(manifest.get("apiVersion") or "")
    return manifest["kind"] in MODELS and version.startswith(f"{names.GROUP}/")


def _is_queue(manifest: Json) -> bool:
    version = str(manifest.get("apiVersion") or "")
    return manifest["kind"] == "Queue" and version.startswith(f"{names.GROUP}/")


def _problem(problem: Any) -> str:
    path = ".".join(str(part) for part in problem["loc"]) or "the manifest"
    suffix = (
        "" if problem["type"] == "missing" else f", not {cleaned(ascii(problem['input']))[:80]}"
    )
    text = problem["msg"].removeprefix("Value error, ")
    return f"{path}: {text[:1].lower()}{text[1:]}{suffix}"


def _hints(spec: Json) -> Iterator[str]:
    if not spec.get("estimatedDuration"):
        yield (
            "spec.estimatedDuration: is missing, so the job cannot start ahead of a larger "
            "waiting job before similar runs are known"
        )
    for task in spec.get("tasks") or ():
        path = f"spec.tasks[{task['name']}].template.spec"
        pod = task["template"]["spec"]
        for name, instead in _OVERRULED.items():
            if pod.get(name):
                yield f"{path}.{name}: has no effect: {instead}"
        if pod.get("schedulerName") not in (None, names.SCHEDULER_NAME):
            yield f"{path}.schedulerName: has no effect: pods are placed by {names.SCHEDULER_NAME}"
        if pod.get("restartPolicy") == "Always":
            yield f"{path}.restartPolicy: Always never ends; the job would not either"
        for container in pod.get("containers") or ():
            resources = container.get("resources") or {}
            if not (resources.get("requests") or resources.get("limits")):
                yield (
                    f"{path}.containers[{container['name']}].resources: requests nothing, so "
                    "every node seems large enough"
                )


_LOOK_SECONDS: Final = 1.0
_UNTIL: Final = {"running": frozenset({"Running"}) | ENDED_PHASES, "succeeded": ENDED_PHASES}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("manifest", nargs="+", metavar="MANIFEST", help="YAML files; - for standard input")
    add("--check", action="store_true", help="check only, and send nothing")
    add(
        "--dry-run",
        action="store_true",
        help="send nothing, and predict the start of each TrainingJob: time, nodes, the gangs "
        "before it, the gangs it would stop, and changes for an earlier start",
    )
    add(
        "--wait",
        nargs="?",
        type=common.duration,
        const="24h",
        metavar="TIME",
        help="follow every TrainingJob and PodGroup, at most this long, such as 10m; default: 24h",
    )
    add("--until", choices=tuple(_UNTIL), default="running", help="with --wait; default: running")
    add_what_if(parser)
    leader.add_leader(parser)
    common.add_target(parser)
    common.add_output(parser)


def run(options: argparse.Namespace) -> int:
    manifests: list[Json] = []
    for name in options.manifest:
        with naming("MANIFEST"):
            manifests += manifest_files.read(name)
    if not manifests:
        empty = ", ".join(map(repr, options.manifest))
        raise ConsoleError(f"argument MANIFEST: {empty} has no manifest; name a file with one")

    if options.dry_run:
        return _dry_run(options, manifests)
    for name, is_set in (
        ("--output", options.output != "text"),
        ("--record", options.record),
        ("--try", options.tries),
    ):
        if is_set:
            raise UsageError(f"argument {name}: needs --dry-run; add it")

    async def question(reader: ClusterReader) -> int:
        collections = Collections(reader)
        await check(reader, manifests, collections)
        if options.check:
            sys.stdout.write(f"{len(manifests)} checked, nothing sent\n")
            return 0
        sent = [await send(reader, manifest, collections) for manifest in manifests]
        if not options.wait:
            return 0
        gangs = [line for line in sent if line is not None]
        return await follow(reader, gangs, options.wait, options.until)

    return ask(options, question)


def _dry_run(options: argparse.Namespace, manifests: Sequence[Json]) -> int:
    # Imported here: they load the whole scheduler.
    from bireme.cli import what_if
    from bireme.replay.what_if import Inquiry

    wrong = 0
    for manifest in manifests:
        findings = lint(manifest)
        if manifest["kind"] != "TrainingJob" or not _is_gang(manifest):
            findings.hints.append("is ignored: --dry-run predicts only TrainingJobs")
        wrong += _report(manifest, findings)
    if wrong:
        raise ConsoleError(f"nothing was predicted: {wrong} error{'s' * (wrong != 1)} above")
    jobs = [job for job in manifests if job["kind"] == "TrainingJob" and _is_gang(job)]
    if not jobs:
        raise ConsoleError("argument MANIFEST: has no TrainingJob; name a file with one")
    with naming("--try"):
        tries = [what_if.change_of([change]) for change in options.tries]
    question = Inquiry(
        manifests=jobs,
        namespace=options.namespace or "",
        tries=tries,
    )
    what_if.write(options, what_if.answers(options, question), is_list=True)
    return 0


class Collections:
    """Paths at which manifests are created; other API groups are discovered once for each."""

    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader
        self._served: dict[str, list[Json]] = {}

    async def path(self, manifest: Json) -> str | None:
        """Return the path of the collection; None if the cluster knows no such kind."""
        kind, version = manifest["kind"], manifest["apiVersion"]
        namespace = (manifest.get("metadata") or {}).get("namespace") or self._reader.namespace
        if _is_gang(manifest):
            return names.path(names.PLURALS[kind], namespace)
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self._served:
            self._served[version] = await self._resources(root)
        for served in self._served[version]:
            if served["kind"] == kind and "/" not in served["name"]:  # no subresource
                within = f"/namespaces/{namespace}" if served["namespaced"] else ""
                return f"{root}{within}/{served['name']}"
        return None

    async def _resources(self, root: str) -> list[Json]:
        try:
            resource_list: Json = msgspec.json.decode(await self._reader.client.get(root))
        except ApiError as error:
            if error.is_not_found:
                return []
            raise refusal(error, f"read {root}") from error
        return resource_list.get("resources") or []


async def check(reader: ClusterReader, manifests: Sequence[Json], collections: Collections) -> None:
    """Print all findings; raise ConsoleError if there are errors among them."""
    queues = await reader.objects_if_allowed(names.path("queues"))
    linted = [(manifest, lint(manifest)) for manifest in manifests]
    if queues is not None:  # with the queues among the manifests
        queues += [
            manifest for manifest, findings in linted if _is_queue(manifest) and not findings.errors
        ]
    wrong = 0
    for manifest, findings in linted:
        # The API server would only repeat the faults that are found here.
        if not findings.errors:
            queue = await _queue_of(reader, manifest) if _is_gang(manifest) else ""
            findings.errors += lint_queue(queue, queues) if queue and queues is not None else ()
            findings.errors += await _refusal(reader, manifest, collections)
        wrong += _report(manifest, findings)
    if wrong:
        raise ConsoleError(f"nothing was sent: {wrong} error{'s' * (wrong != 1)} above")


def _report(manifest: Json, findings: Findings) -> int:
    """Print the findings about a manifest, and return the number of errors."""
    about = manifest.get("metadata") or {}
    name = about.get("name") or about.get("generateName") or "?"
    for severity, problems in (("error", findings.errors), ("hint", findings.hints)):
        for problem in problems:
            what = cleaned(f"{manifest['kind']} {name}")
            sys.stderr.write(f"{severity}: {what}: {problem}\n")
    return len(findings.errors)


async def _queue_of(reader: ClusterReader, manifest: Json) -> str:
    """Return the queue of the gang; empty if only its namespace names it and may not be read."""
    if named := (manifest.get("spec") or {}).get("queue"):
        return str(named)
    namespace = (manifest.get("metadata") or {}).get("namespace") or reader.namespace
    try:
        body = await reader.client.get(f"/api/v1/namespaces/{namespace}")
    except ApiError:
        return ""
    labels = msgspec.json.decode(body, type=wire.MetadataOnly).metadata.labels or {}
    return labels.get(names.DEFAULT_QUEUE_LABEL) or names.DEFAULT_QUEUE


async def _refusal(reader: ClusterReader, manifest: Json, collections: Collections) -> list[str]:
    """Return the API server's objections to a manifest, by a dry run."""
    path = await collections.path(manifest)
    if path is None:
        kind = cleaned(f"{manifest['apiVersion']} {manifest['kind']}")
        remedy = "correct kind and apiVersion, or install the CustomResourceDefinition"
        return [f"kind: the cluster knows no {kind}; {remedy}"]
    try:
        await reader.client.request(
            "POST",
            path,
            body=msgspec.json.encode(manifest),
            params={"dryRun": "All", "fieldValidation": "Strict"},
        )
    except ApiError as error:
        if error.is_invalid or error.is_forbidden or error.is_already_exists:
            return [error.message]
        raise refusal(error, f"create {path.rpartition('/')[2]}") from error
    return []


async def send(reader: ClusterReader, manifest: Json, collections: Collections) -> GangLine | None:
    """Create the object, and print that; return its line if it is a gang."""
    path = await collections.path(manifest)
    if path is None:
        raise ConsoleError(f"the cluster knows no {cleaned(manifest['kind'])} any more; try again")
    try:
        answer = await reader.client.create(path, manifest)
    except ApiError as error:
        raise refusal(error, f"create {path.rpartition('/')[2]}") from error
    if not _is_gang(manifest):
        about = msgspec.json.decode(answer)["metadata"]
        key = "/".join(filter(None, (about.get("namespace"), about["name"])))
        sys.stdout.write(cleaned(f"{manifest['kind']} {key}") + " created\n")
        return None
    gang = line_of({"kind": manifest["kind"], **msgspec.json.decode(answer)})
    sys.stdout.write(f"{gang.kind} {gang.key} created; see: bireme why {gang.name}\n")
    return gang


async def follow(reader: ClusterReader, sent: Sequence[GangLine], seconds: float, goal: str) -> int:
    """Print every change until all have reached the ``goal``; return 1 if one fails, else 0."""
    until = time.monotonic() + seconds
    last_states: dict[str, tuple[str, str]] = {}
    remaining = list(sent)
    while remaining:
        for gang in tuple(remaining):
            now = line_of(await reader.get(names.PLURALS[gang.kind], gang.name, gang.namespace))
            if last_states.get(gang.key) != (now.phase, now.reason):
                last_states[gang.key] = (now.phase, now.reason)
                words = f"{now.reason}: {now.message}" if now.reason else "new"
                sys.stdout.write(f"{now.key}: {now.phase}, {words}\n")
                sys.stdout.flush()
            if now.phase in _UNTIL[goal]:
                remaining.remove(gang)
        # Checked after the read, so that even the shortest wait reads once.
        if remaining and time.monotonic() > until:
            waiting = ", ".join(gang.key for gang in remaining)
            raise ConsoleError(
                f"not {goal} after {duration(seconds)}: {waiting}; see bireme why, or wait longer "
                "with --wait"
            )
        if remaining:
            await asyncio.sleep(_LOOK_SECONDS)
    return int(any(phase == "Failed" for phase, _ in last_states.values()))
