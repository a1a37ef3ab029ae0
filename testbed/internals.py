"""Other values of the programs' internals, for tests that cannot wait for the real ones.

Internals are constants of the programs, which nobody configures. A test may change those of its own
process, or run a program with others: ``python -m testbed.internals bireme_operator
status_refresh_seconds=1``.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any, Final
from unittest.mock import patch

PLACES: Final[Mapping[str, tuple[str, str]]] = {
    "body_timeout_seconds": ("bireme_extender.server", "_BODY_SECONDS"),
    "contact_limit_seconds": ("bireme_extender.cache", "MAX_SILENCE_SECONDS"),
    "cycle_debounce_seconds": ("bireme_operator.loop", "_DEBOUNCE_SECONDS"),
    "lease_duration_seconds": ("bireme_operator.lease", "DURATION_SECONDS"),
    "max_pinned_failures": ("bireme_operator.admission", "_MAX_PINNED_FAILURES"),
    "outlook_interval_seconds": ("bireme_operator.outlooks", "_INTERVAL_SECONDS"),
    "plan_wait_seconds": ("bireme_extender.server", "PLAN_WAIT_SECONDS"),
    "progress_write_seconds": ("bireme_operator.progress_auth", "WRITE_SECONDS"),
    "refresh_writes_per_second": ("bireme_operator.status_writer", "_REFRESHES_PER_SECOND"),
    "shadow_core_share": ("bireme_operator.regrets", "_CORE_SHARE"),
    "shadow_interval_seconds": ("bireme_operator.regrets", "_INTERVAL_SECONDS"),
    "status_refresh_seconds": ("bireme_operator.status_writer", "REFRESH_SECONDS"),
    "sweep_interval_seconds": ("bireme_operator.loop", "_SWEEP_SECONDS"),
    "template_check_seconds": ("bireme_operator.dry_runs", "_CHECK_SECONDS"),
    "write_concurrency": ("bireme_operator.leader", "MAX_WRITES"),
}
"""Module and constant of each internal that a test changes."""


@contextmanager
def changed(**values: float) -> Iterator[None]:
    """Give internals other values within the block; KeyError for an unknown one."""
    with ExitStack() as stack:
        for name, value in values.items():
            module, constant = PLACES[name]
            stack.enter_context(patch.object(import_module(module), constant, value))
        yield


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the options that are settings, and those that are internals."""
    internals = {name: value for name, value in options.items() if name in PLACES}
    return {name: value for name, value in options.items() if name not in PLACES}, internals


def command(program: str, values: Mapping[str, float]) -> list[str]:
    """Return the command of ``program`` with other values of those internals that it has."""
    return [sys.executable, "-m", *module_command(program, values)]


def module_command(program: str, values: Mapping[str, float]) -> list[str]:
    """Return the module and the arguments of :func:`command`."""
    pairs = [
        f"{name}={json.dumps(value)}"
        for name, value in values.items()
        if PLACES[name][0].startswith(f"{program}.")
    ]
    prefix = ["testbed.internals"] if pairs else []
    return [*prefix, program, *pairs]


def main(arguments: Sequence[str]) -> int:
    """Run a program with the internals ``NAME=VALUE``, and return its exit status."""
    program, *pairs = arguments
    values = {name: json.loads(value) for name, _, value in (pair.partition("=") for pair in pairs)}
    with changed(**values):
        return int(import_module(f"{program}.__main__").main())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
