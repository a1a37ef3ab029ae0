"""The SchedulingPolicy ``bireme-learned-shadow``: a trained policy that is compared from day one.

Its checkpoint is in the section ``learnedShadow`` of the settings file; without that section
nothing is made. A leader makes it once per version of Bireme: an administrator who deletes it is
rid of it until an upgrade, and one that exists, whatever was made of it, stays as it is. That it
was made is remembered by a Lease that nobody holds, beside the operator's own: the operator has the
right to make one, and needs none to read it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

import structlog
from pydantic import ValidationError

from bireme.core.errors import SettingError
from bireme.kube import names
from bireme.kube.api.scheduling_policy import CheckpointReference
from bireme.kube.client import ApiError, NotLeader, jittered_pause
from bireme_operator.writes import Writes

SECTION: Final = "learnedShadow"
NAME: Final = "bireme-learned-shadow"
_log = structlog.get_logger(__name__)
_PAUSES_SECONDS: Final = (1.0, 60.0)


def checkpoint_of(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the checkpoint in a settings file; None without one.

    Raises:
        SettingError: it is not the checkpoint of a SchedulingPolicy.
    """
    section = document.get(SECTION)
    if section is None:
        return None
    try:
        CheckpointReference.model_validate(section)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, (SECTION, *first["loc"])))
        raise SettingError(f"{place} in the settings file: {first['msg']}; correct it") from error
    return dict(section)


def marker(release: str) -> str:
    """Return the name of the Lease that says that version ``release`` has made it."""
    return f"{NAME}-{release}".lower().replace("+", "-")


async def make(checkpoint: Mapping[str, Any], namespace: str, writes: Writes) -> None:
    """Create the policy unless this version of Bireme has; tried until the API server decides."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": marker(version("bireme")), "namespace": namespace},
    }
    if not await _created(lease, writes.create_lease):
        return
    policy = {
        "apiVersion": names.API_VERSION,
        "kind": "SchedulingPolicy",
        "metadata": {"name": NAME},
        "spec": {"checkpoint": dict(checkpoint), "stage": "Shadow"},
    }
    if await _created(policy, writes.create_policy):
        _log.info("made the learned shadow", policy=NAME)


async def _created(
    manifest: Mapping[str, Any], create: Callable[[Mapping[str, Any]], Awaitable[None]]
) -> bool:
    """Create an object; return False where somebody else has, or it is refused."""
    failures, name = 0, manifest["metadata"]["name"]
    while True:
        try:
            await create(manifest)
        except NotLeader:
            return False
        except ApiError as error:
            if error.is_already_exists:
                return failures > 0  # of the request before, the answer was lost
            if not error.is_retryable:
                _log.error("not made", object=name, error=str(error))
                return False
            _log.info("not made yet", object=name, error=str(error))
        else:
            return True
        await asyncio.sleep(jittered_pause(failures, *_PAUSES_SECONDS))
        failures += 1
