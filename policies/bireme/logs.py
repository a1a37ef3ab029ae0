"""Configure logging of the operator and the extender: one JSON object per line, on stderr.

Characters outside printable ASCII are escaped, so that no string from the cluster can break a line
or control a terminal. Libraries that use :mod:`logging` go through the same renderer, from warnings
on, because their lower levels describe their own internals.
"""

import json
import logging
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

import structlog
from structlog.typing import Processor

from bireme.core.bounds import OneOf

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LogLevel: TypeAlias = Annotated[str, OneOf(LOG_LEVELS)]
"""Type of the settings ``log_level``."""


def configure(level: str) -> None:
    """Log at ``level``, one of LOG_LEVELS, and above."""
    severity = logging.getLevelNamesMapping()[level.upper()]
    prepared: tuple[Processor, ...] = (
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    )
    rendered = structlog.processors.JSONRenderer(serializer=to_ascii_json)
    structlog.configure(
        processors=[*prepared, rendered],
        wrapper_class=structlog.make_filtering_bound_logger(severity),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),  # a line is one write
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=prepared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, rendered],
        )
    )
    logging.basicConfig(level=max(severity, logging.WARNING), handlers=[handler], force=True)


def exit_status(run: Callable[[], int], *unusable: type[Exception]) -> int:
    """Run a program and return its exit status.

    The status is that of ``run``, 2 after an ``unusable`` error (of settings, say), and 1 after any
    other error. Errors are logged.
    """
    configure("info")
    log = structlog.get_logger(__name__)
    try:
        return run()
    except unusable as error:
        log.error("cannot start", error=str(error))
        return 2
    except Exception:
        log.exception("ended by a fault")
        return 1


def to_ascii_json(event: Any, default: Callable[[Any], Any] | None = None, **options: Any) -> str:
    """Return ``event`` as JSON in printable ASCII."""
    return json.dumps(event, default=default, **options).replace("\x7f", "\\u007f")
