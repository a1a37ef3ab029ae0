"""``bireme-operator``: settings from the environment, then run until a signal or a failure.

The exit status is 0 after SIGTERM or SIGINT, and 2 if settings, credentials or ports are unusable.
It is 1 after a fault and after the loss of the lease.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

from bireme.startup import importing

with importing():
    import uvloop

    from bireme import logs, settings_source
    from bireme.core.errors import SettingError
    from bireme.core.settings import SchedulingSettings
    from bireme_operator import first_objects
    from bireme_operator.app import Operator, StartError
    from bireme_operator.settings import OperatorSettings


def main() -> int:
    """Run the operator and return the exit status."""
    return logs.exit_status(_run, SettingError, StartError)


def _run() -> int:
    document = settings_source.document(os.environ)
    settings = settings_source.read(OperatorSettings, os.environ, document)
    scheduling = settings_source.read(SchedulingSettings, os.environ, document)
    queue = first_objects.queue_spec(document)
    shadow = first_objects.shadow_checkpoint(document)
    logs.configure(settings.log_level)
    return uvloop.run(run(settings, scheduling, queue, shadow))


async def run(
    settings: OperatorSettings,
    scheduling: SchedulingSettings,
    queue: Mapping[str, Any] | None,
    shadow: Mapping[str, Any] | None,
) -> int:
    """Run the operator until SIGTERM, SIGINT or failure; return the exit status."""
    operator = Operator(settings, scheduling, queue, shadow)
    loop = asyncio.get_running_loop()
    for signal_number in (2, 15):
        loop.add_signal_handler(signal_number, operator.stop.set)
    return await operator.run()


if __name__ == "__main__":
    sys.exit(main())
