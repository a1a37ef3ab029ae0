"""The objects that a new leader makes: the Queue ``default``, and a learned shadow.

The chart could make them only by asking the cluster while it renders, which what applies rendered
manifests cannot do. Each has a section in the settings file; without it nothing is made. One that
exists is somebody's and stays as it is.

* ``defaultQueue``: the spec of the Queue ``default``, for jobs that name none, where there is none.
* ``learnedShadow``: the checkpoint of the SchedulingPolicy ``bireme-learned-shadow``, a trained
  policy that is compared from day one. It is made once per version of Bireme: an administrator who
  deletes it is rid of it until an upgrade. That it was made is remembered by a Lease that nobody
  holds, beside the operator's own: the operator has the right to make one, and needs none to read
  it.
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
from bireme.kube.client import ApiError, NotLeader, pause_with_jitter
from bireme.kube.tenancy import Tenancy
from bireme_operator.writes import Writes

SHADOW_NAME: Final = "bireme-learned-shadow"
_log = structlog.get_logger(__name__)
_PAUSES_SECONDS: Final = (1.0, 60.0)


def queue_spec(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the spec of the default queue in a settings file; None without one.

    Raises:
        SettingError: it is not the spec of a Queue.
    """
    return _section(document, "defaultQueue", QueueSpec)


def shadow_checkpoint(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the checkpoint of the learned shadow in a settings file; None without one.

    Raises:
        SettingError: it is not the checkpoint of a SchedulingPolicy.
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
    """Create the queue unless ``tenancy`` knows it; tried until the API server has decided."""
    queue = {
        "apiVersion": names.API_VERSION,
        "kind": "Queue",
        "metadata": {"name": names.DEFAULT_QUEUE},
        "spec": spec,
    }
    if names.DEFAULT_QUEUE not in tenancy.queue_manifests:
        await _created(queue, writes.create_queue)


async def make_learned_shadow(
    checkpoint: Mapping[str, Any], namespace: str, writes: Writes
) -> None:
    """Create the policy unless this version of Bireme has; tried until the API server decides."""
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
    if await _created(lease, writes.create_lease):
        await _created(policy, writes.create_policy)


def shadow_marker(release: str) -> str:
    """Return the name of the Lease that says that version ``release`` has made the shadow."""
    return f"{SHADOW_NAME}-{release}".lower().replace("+", "-")


async def _created(
    manifest: Mapping[str, Any], create: Callable[[Mapping[str, Any]], Awaitable[None]]
) -> bool:
    """Create an object; return False where somebody else has, or it is refused."""
    failures, kind, name = 0, manifest["kind"], manifest["metadata"]["name"]
    while True:
        try:
            await create(manifest)
        except NotLeader:
            return False
        except ApiError as error:
            if error.is_already_exists:
                return failures > 0  # of the request before, the answer was lost
            if not error.is_retryable:
                _log.error("not made", kind=kind, name=name, error=str(error))
                return False
            _log.info("not made yet", kind=kind, name=name, error=str(error))
        else:
            _log.info("made", kind=kind, name=name)
            return True
        await asyncio.sleep(pause_with_jitter(failures, *_PAUSES_SECONDS))
        failures += 1
