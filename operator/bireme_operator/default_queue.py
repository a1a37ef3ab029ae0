"""The Queue ``default``, for jobs that name none: a new leader makes it where there is none.

Its spec is the section ``defaultQueue`` of the settings file; without that section nothing is made.
One that exists is somebody's and stays as it is. The chart could make it only by asking the cluster
while it renders, which what applies rendered manifests cannot do.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import structlog
from pydantic import ValidationError

from bireme.core.errors import SettingError
from bireme.kube import names
from bireme.kube.api.queues import QueueSpec
from bireme.kube.client import ApiError, NotLeader, jittered_pause
from bireme.kube.tenancy import Tenancy
from bireme_operator.writes import Writes

SECTION: Final = "defaultQueue"
_log = structlog.get_logger(__name__)
_PAUSES_SECONDS: Final = (1.0, 60.0)


def spec_of(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the spec in a settings file; None without one.

    Raises:
        SettingError: it is not the spec of a Queue.
    """
    spec = document.get(SECTION)
    if spec is None:
        return None
    try:
        QueueSpec.model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, (SECTION, *first["loc"])))
        raise SettingError(f"{place} in the settings file: {first['msg']}; correct it") from error
    return dict(spec)


async def make(spec: Mapping[str, Any], tenancy: Tenancy, writes: Writes) -> None:
    """Create the queue unless ``tenancy`` knows it; tried until the API server has decided."""
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": "Queue",
        "metadata": {"name": names.DEFAULT_QUEUE},
        "spec": spec,
    }
    failures = 0
    while names.DEFAULT_QUEUE not in tenancy.queue_manifests:
        try:
            await writes.create_queue(manifest)
        except NotLeader:
            return
        except ApiError as error:
            if not error.is_retryable:
                if not error.is_already_exists:
                    _log.error("no default queue was made", error=str(error))
                return
            _log.info("default queue not made yet", error=str(error))
        else:
            _log.info("made the default queue")
            return
        await asyncio.sleep(jittered_pause(failures, *_PAUSES_SECONDS))
        failures += 1
