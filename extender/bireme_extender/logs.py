"""Log lines: one JSON object each, whatever strings from the cluster end up in them.

Everything outside printable ASCII is escaped, so that no message can break a line or reach a
terminal. Libraries that log in the standard way go through the same renderer.
"""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from structlog.typing import Processor

_QUIET_LIBRARIES = ("asyncio", "uvicorn.error", "aiohttp.client")


def configure(level: str) -> None:
    """Send everything at ``level`` and above to standard output."""
    shared: Sequence[Processor] = (
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    )
    severity = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(severity),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(serializer=escaped),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(severity)
    for library in _QUIET_LIBRARIES:
        logging.getLogger(library).setLevel(max(severity, logging.WARNING))


def escaped(event: Any, default: Callable[[Any], Any] | None = None, **options: Any) -> str:
    """``event`` as JSON in printable ASCII."""
    return json.dumps(event, default=default, **options).replace("\x7f", "\\u007f")
