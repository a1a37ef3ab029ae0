"""``bireme logs``: the logs of a gang's replicas, each line after its task and index.

With ``-f`` replicas that start later are followed too: those of a job that still waits, of its next
attempt, and those that an elastic job adds. It ends when the gang has ended.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bireme.cli import cluster as common
from bireme.cli.arguments import Json, UsageError, whole
from bireme.cli.cluster import ClusterReader, ConsoleError, ask, refusal
from bireme.cli.gangs import ENDED_PHASES, GangLine, line_of
from bireme.cli.why import parse_gang_name
from bireme.kube import names
from bireme.kube.client import ApiError
from bireme.kube.conditions import cleaned

_LABELS: Final = {"trainingjobs": names.JOB_LABEL, "podgroups": names.POD_GROUP_LABEL}
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_MAX_FOLLOWED: Final = 60
"""Fewer than the client's connections, so that the gang itself can still be read."""
_LOOK_SECONDS: Final = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("job", metavar="JOB", help="a TrainingJob's name; podgroup/NAME for a PodGroup")
    add("-f", "--follow", action="store_true", help="follow the logs until the gang has ended")
    add(
        "--tail",
        type=partial(whole, minimum=0),
        metavar="N",
        help="only the last N lines of each replica",
    )
    add("--task", action="append", metavar="NAME", help="only replicas of this task; repeatable")
    add(
        "--index",
        type=partial(whole, minimum=0),
        action="append",
        metavar="N",
        help="only replicas with this index in their task; repeatable",
    )
    add(
        "-c",
        "--container",
        metavar="NAME",
        help="default: an init container that failed, else the pod's default container, else its "
        "first",
    )
    common.add_target(parser)


def run(options: argparse.Namespace) -> int:
    plural, name = parse_gang_name(options.job)
    if plural == "podgroups" and (options.task or options.index):
        raise UsageError("argument --task, --index: pods of a PodGroup have no task; leave it out")
    logs = _Logs(options, plural, name)
    return ask(options, logs.follow if options.follow else logs.show)


@dataclass(frozen=True, slots=True)
class _Source:
    """The log of one container."""

    uid: str
    path: str
    container: str
    label: str
    """Prefix of each of its lines."""
    has_started: bool


class _Logs:
    """The logs of the gang ``name`` that ``options`` select."""

    def __init__(self, options: argparse.Namespace, plural: str, name: str) -> None:
        self._options = options
        self._plural, self._name = plural, name

    async def show(self, reader: ClusterReader) -> int:
        """Write the logs that exist; return 1 if no replica has one."""
        line = await self._line(reader)
        sources = await self._sources(reader)
        if not sources:
            raise ConsoleError(
                f"{_state(line)} and has no such pod; see: bireme why {self._options.job}"
            )
        results = [await self._write(reader, source) for source in sources]
        return int(not any(results))

    async def follow(self, reader: ClusterReader) -> int:
        """Write new lines until the gang has ended and its logs are complete."""
        tasks: dict[str, asyncio.Task[bool]] = {}
        try:
            while True:
                # Read before the pods, to miss no pod that starts before the phase is an end.
                line = await self._line(reader)
                for source in await self._sources(reader):
                    if source.uid not in tasks and source.has_started:
                        tasks[source.uid] = asyncio.create_task(self._write(reader, source))
                for task in tasks.values():
                    if task.done():
                        task.result()  # raises the error that ends the command
                open_now = [task for task in tasks.values() if not task.done()]
                if len(open_now) > _MAX_FOLLOWED:
                    raise UsageError(
                        f"argument -f: {len(open_now)} replicas run, and -f follows at most "
                        f"{_MAX_FOLLOWED}; choose with --task or --index"
                    )
                if line.phase in ENDED_PHASES and not open_now:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
            if line.phase == "Failed":
                sys.stderr.write(f"bireme: {_state(line)}\n")
            return int(not any([await task for task in tasks.values()]))
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _line(self, reader: ClusterReader) -> GangLine:
        return line_of(await reader.get(self._plural, self._name, reader.namespace))

    async def _sources(self, reader: ClusterReader) -> list[_Source]:
        """Return the chosen replicas' containers, by task and index."""
        options = self._options
        pods = await reader.objects(
            f"/api/v1/namespaces/{reader.namespace}/pods",
            labelSelector=f"{_LABELS[self._plural]}={self._name}",
        )
        selected_pods = [pod for pod in pods if _is_chosen(pod, options.task, options.index)]
        return [_source(pod, options.container) for pod in sorted(selected_pods, key=_place)]

    async def _write(self, reader: ClusterReader, source: _Source) -> bool:
        """Write one log; return False, with a message, if it cannot be read."""
        params = {"container": source.container}
        if self._options.follow:
            params["follow"] = "true"
        if self._options.tail is not None:
            params["tailLines"] = str(self._options.tail)
        try:
            async for line in reader.client.stream(
                source.path,
                params,
                # A replica may write nothing for hours.
                read_timeout_seconds=None if self._options.follow else 70.0,
                with_last_part=True,
            ):
                sys.stdout.write(f"[{source.label}] {line.decode(errors='replace')}\n")
                if self._options.follow:
                    sys.stdout.flush()
        except ApiError as error:
            if error.is_forbidden:
                raise refusal(error, "get pods/log") from error
            reason = cleaned(error.message)
            sys.stderr.write(f"bireme: the log of {source.label} is missing or ended: {reason}\n")
            return False
        return True


def _state(line: GangLine) -> str:
    """Return the gang's phase and the reason for it."""
    reason = ": ".join(filter(None, (line.reason, line.message)))
    return f"{line.name} is {line.phase}" + (f" ({reason})" if reason else "")


def _is_chosen(pod: Json, tasks: Sequence[str] | None, indices: Sequence[int] | None) -> bool:
    labels = pod["metadata"].get("labels") or {}
    has_task = tasks is None or labels.get(names.TASK_LABEL) in tasks
    has_index = indices is None or labels.get(names.INDEX_LABEL) in [str(n) for n in indices]
    return has_task and has_index


def _has_failed(init_container: Json) -> bool:
    """Return whether an init container failed, so that the other containers have no log."""
    terminated = (init_container.get("state") or {}).get("terminated") or {}
    return bool(terminated.get("exitCode"))


def _place(pod: Json) -> tuple[Any, ...]:
    labels = pod["metadata"].get("labels") or {}
    index = labels.get(names.INDEX_LABEL, "")
    return labels.get(names.TASK_LABEL, ""), len(index), index, pod["metadata"]["name"]


def _source(pod: Json, container: str | None) -> _Source:
    about = pod["metadata"]
    labels = about.get("labels") or {}
    task, index = labels.get(names.TASK_LABEL), labels.get(names.INDEX_LABEL)
    status: Json = pod.get("status") or {}
    inits = status.get("initContainerStatuses") or ()
    container_name = (
        container
        or next((init["name"] for init in inits if _has_failed(init)), None)
        or (about.get("annotations") or {}).get(_DEFAULT_CONTAINER)
        or pod["spec"]["containers"][0]["name"]
    )
    statuses = (*inits, *(status.get("containerStatuses") or ()))
    state: Json = next((s.get("state") or {} for s in statuses if s["name"] == container_name), {})
    return _Source(
        uid=about["uid"],
        path=f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}/log",
        container=container_name,
        label=f"{task}-{index}" if task and index else about["name"],
        has_started="running" in state or "terminated" in state,
    )
