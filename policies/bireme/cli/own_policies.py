"""Policies that a command line or a record names, with errors that name their argument."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bireme import registry
from bireme.cli.arguments import UsageError, naming
from bireme.core.errors import BiremeError, error_text
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings


def find_own(names: Sequence[str]) -> None:
    """Make classes of the user among ``names`` importable from the current folder."""
    folder = str(Path.cwd())
    if any(":" in name for name in names) and folder not in sys.path:
        # A console script has its own folder on sys.path, not the one it is started in.
        sys.path.append(folder)


def as_set(
    settings: SchedulingSettings, argument: str, name: str
) -> tuple[Policy, SchedulingSettings]:
    """Return the policy of ``settings``, which ``argument`` calls ``name``, and ``settings``."""
    find_own([settings.orderer, settings.placer, settings.sizer])
    with making(argument, name):
        return registry.make_policy(settings), settings


def recorded_name(settings: SchedulingSettings) -> str:
    """Return the name of the policy of a record's settings."""
    return "/".join(filter(None, (settings.orderer, settings.placer, settings.sizer)))


@contextmanager
def making(argument: str, name: str) -> Iterator[None]:
    """Name ``argument`` in errors, as :func:`naming`; a user's own code may raise anything."""
    try:
        with naming(argument):
            yield
    except BiremeError:
        raise
    except Exception as error:
        raise UsageError(
            f"argument {argument}: {name!r} cannot be created: {error_text(error)}"
        ) from error
