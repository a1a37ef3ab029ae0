"""The objects that a new leader creates: the Queue ``default``, and a learned shadow.

The chart could create them only with a lookup in the cluster at render time, which tools that apply
rendered manifests do not support. Each has a section in the settings file; without it the leader
creates nothing. An existing object stays unchanged.

* ``defaultQueue``: the spec of the Queue ``default``, for jobs that name no queue.
* ``learnedShadow``: the checkpoint of the SchedulingPolicy ``bireme-learned-shadow``, a trained
  policy for comparison from the first day. It is created once per version of Bireme: if an
  administrator deletes it, it stays away until an upgrade. A Lease without a holder, beside the
  operator's own, records the creation: the operator may create a Lease, and needs no permission to
  read it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

import structlog
from pydantic import BaseModel, ValidationError

from bireme.core.errors import SettingError
from bireme.kube import names
from bireme.kube.api.queues import QueueSpec
from bireme.kube.api.scheduling_policy import CheckpointReference
from bireme.kube.client import ApiError, NotLeader, jittered_pause
from bireme.kube.tenancy import Tenancy
from bireme_operator.writes import Writes

SHADOW_NAME: Final = "bireme-learned-shadow"
_log = structlog.get_logger(__name__)
_PAUSES_SECONDS: Final = (1.0, 60.0)


def queue_spec(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the spec of the default queue in a settings file; None without one.

    Raises:
        SettingError: the section is not the spec of a Queue.
    """
    return _section(document, "defaultQueue", QueueSpec)


def shadow_checkpoint(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the checkpoint of the learned shadow in a settings file; None without one.

    Raises:
        SettingError: the section is not the checkpoint of a SchedulingPolicy.
    """
    return _section(document, "learnedShadow", CheckpointReference)


def _section(
    document: Mapping[str, Any], name: str, model: type[BaseModel]
) -> Mapping[str, Any] | None:
    section = document.get(name)
    if section is None:
        return None
    try:
        model.model_validate(section)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, (name, *first["loc"])))
        raise SettingError(f"{place} in the settings file: {first['msg']}; correct it") from error
    return dict(section)


async def make_default_queue(spec: Mapping[str, Any], tenancy: Tenancy, writes: Writes) -> None:
    """Create the queue unless ``tenancy`` has it; retry until the API server decides."""
    queue = {
        "apiVersion": names.API_VERSION,
        "kind": "Queue",
        "metadata": {"name": names.DEFAULT_QUEUE},
        "spec": spec,
    }
    if names.DEFAULT_QUEUE not in tenancy.queue_manifests:
        await _create(queue, writes.create_queue)


async def make_learned_shadow(
    checkpoint: Mapping[str, Any], namespace: str, writes: Writes
) -> None:
    """Create the policy unless this version has done so; retry until the API server decides."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": shadow_marker(version("bireme")), "namespace": namespace},
    }
    policy = {
        "apiVersion": names.API_VERSION,
        "kind": "SchedulingPolicy",
        "metadata": {"name": SHADOW_NAME},
        "spec": {"checkpoint": dict(checkpoint), "stage": "Shadow"},
    }
    if await _create(lease, writes.create_lease):
        await _create(policy, writes.create_policy)


def shadow_marker(release: str) -> str:
    """Return the name of the Lease that records the shadow's creation by version ``release``."""
    return f"{SHADOW_NAME}-{release}".lower().replace("+", "-")


async def _create(
    manifest: Mapping[str, Any], create: Callable[[Mapping[str, Any]], Awaitable[None]]
) -> bool:
    """Create an object; return False if another client has created it, or it is refused."""
    failures, kind, name = 0, manifest["kind"], manifest["metadata"]["name"]
    while True:
        try:
            await create(manifest)
        except NotLeader:
            return False
        except ApiError as error:
            if error.is_already_exists:
                return failures > 0  # perhaps the previous request's answer was lost
            if not error.is_retryable:
                _log.error("not made", kind=kind, name=name, error=str(error))
                return False
            _log.info("not made yet", kind=kind, name=name, error=str(error))
        else:
            _log.info("made", kind=kind, name=name)
            return True
        await asyncio.sleep(jittered_pause(failures, *_PAUSES_SECONDS))
        failures += 1
