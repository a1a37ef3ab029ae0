"""Policy names and what they stand for, loaded only when asked for."""

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Final, cast

from bireme.core.errors import SettingError
from bireme.core.policy import Orderer, Placer, Policy
from bireme.core.settings import SchedulingSettings

ORDERERS: Final[Mapping[str, str]] = {
    "combined-priority": "bireme.heuristics.combined_priority:CombinedPriority",
    "fifo": "bireme.heuristics.fifo:Fifo",
}
PLACERS: Final[Mapping[str, str]] = {
    "packing": "bireme.heuristics.packing:Packing",
}


def make_policy(settings: SchedulingSettings) -> Policy:
    """The policy that ``settings`` names."""
    return Policy(make_orderer(settings.orderer), make_placer(settings.placer))


def make_orderer(name: str) -> Orderer:
    """The orderer called ``name``; SettingError names the nearest known one."""
    return cast(Orderer, _make("orderer", name, ORDERERS))


def make_placer(name: str) -> Placer:
    """The placer called ``name``; SettingError names the nearest known one."""
    return cast(Placer, _make("placer", name, PLACERS))


def _make(kind: str, name: str, known: Mapping[str, str]) -> object:
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
        raise SettingError(f"no {kind} is called {name!r}; {hint}")
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)()
