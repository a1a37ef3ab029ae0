"""Policies that a command line or a record names, with errors that name their argument."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bireme import registry
from bireme.cli.arguments import UsageError, naming
from bireme.contender import Contender
from bireme.core.errors import BiremeError, error_text
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings


def policy_names(text: str) -> list[str]:
    """Return the names of a list with commas, each once."""
    return once_each(text, [part.strip() for part in text.split(",")])


def once_each(text: str, parts: list[str]) -> list[str]:
    """Return ``parts`` of the argument ``text``; raise ArgumentTypeError for a part named twice."""
    twice = {part for part in parts if parts.count(part) > 1}
    if twice:
        raise argparse.ArgumentTypeError(f"{text!r} names {min(twice)!r} twice; name each once")
    return parts


def recorded_name(settings: SchedulingSettings) -> str:
    """Return the name of the policy of a record's settings."""
    return "/".join(filter(None, (settings.orderer, settings.placer, settings.sizer)))


def contenders(
    names: Sequence[str], general: SchedulingSettings
) -> dict[str, tuple[Policy, SchedulingSettings]]:
    """Return policies by name, as in ``--policy``; parts left out are those of ``general``."""
    return {name: _contender(name, general) for name in names}


def find_own(names: Sequence[str]) -> None:
    """Make classes of the user among ``names`` importable from the current folder."""
    folder = str(Path.cwd())
    if any(":" in name for name in names) and folder not in sys.path:
        # A console script has its own folder on sys.path, not the one it is started in.
        sys.path.append(folder)


def _contender(name: str, general: SchedulingSettings) -> tuple[Policy, SchedulingSettings]:
    with making("--policy", name):
        settings = Contender.read(name, general).settings(general)
    return as_set(settings, "--policy", name)


def as_set(
    settings: SchedulingSettings, argument: str, name: str
) -> tuple[Policy, SchedulingSettings]:
    """Return the policy of ``settings``, which ``argument`` calls ``name``, and ``settings``."""
    find_own([settings.orderer, settings.placer, settings.sizer])
    with making(argument, name):
        return registry.make_policy(settings), settings


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
