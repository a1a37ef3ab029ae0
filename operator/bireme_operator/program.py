"""The operator as a program: settings from the environment, then run until told to stop."""

import asyncio
import logging
import os
import sys

import structlog
import uvloop

from bireme.core.errors import SettingError
from bireme.core.settings import SchedulingSettings
from bireme.kube import settings_source
from bireme_operator.app import Operator, StartError
from bireme_operator.settings import OperatorSettings


def main() -> None:
    """Read the settings, run, exit with what happened."""
    try:
        document = settings_source.document(os.environ)
        settings = settings_source.read(OperatorSettings, os.environ, document)
        scheduling = settings_source.read(SchedulingSettings, os.environ, document)
    except SettingError as error:
        sys.exit(f"bireme-operator: {error}")
    configure_logging(settings.log_level)
    try:
        sys.exit(uvloop.run(run(settings, scheduling)))
    except StartError as error:
        sys.exit(f"bireme-operator: {error}")


async def run(settings: OperatorSettings, scheduling: SchedulingSettings) -> int:
    """The operator, until SIGTERM or failure."""
    operator = Operator(settings, scheduling)
    loop = asyncio.get_running_loop()
    for signal_number in (2, 15):
        loop.add_signal_handler(signal_number, operator.stop.set)
    return await operator.run()


def configure_logging(level: str) -> None:
    """JSON lines on stderr: one event, one line, control characters escaped."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
