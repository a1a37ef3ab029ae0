"""Policy names: every registered one can be made, a wrong one is answered with the nearest."""

import pytest

from bireme import registry
from bireme.core.errors import SettingError
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.fifo import Fifo
from bireme.heuristics.packing import Packing


def test_the_default_settings_name_the_combined_priority_and_packing() -> None:
    policy = registry.make_policy(SchedulingSettings())
    assert isinstance(policy.orderer, CombinedPriority)
    assert isinstance(policy.placer, Packing)


def test_settings_choose_the_policy() -> None:
    policy = registry.make_policy(SchedulingSettings(orderer="fifo"))
    assert isinstance(policy.orderer, Fifo)


@pytest.mark.parametrize("name", sorted(registry.ORDERERS))
def test_every_registered_orderer_can_be_made(name: str) -> None:
    assert callable(registry.make_orderer(name).order)


@pytest.mark.parametrize("name", sorted(registry.PLACERS))
def test_every_registered_placer_can_be_made(name: str) -> None:
    assert callable(registry.make_placer(name).place)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("fif", "no orderer is called 'fif'; did you mean 'fifo'?", id="near"),
        pytest.param("xyz", "known: combined-priority, fifo", id="far"),
        pytest.param("", "known: combined-priority, fifo", id="empty"),
    ],
)
def test_an_unknown_orderer_is_answered_with_the_nearest_known_one(name: str, hint: str) -> None:
    with pytest.raises(SettingError) as error:
        registry.make_orderer(name)
    assert hint in str(error.value)


def test_an_orderer_is_no_placer() -> None:
    with pytest.raises(SettingError, match="no placer is called 'fifo'"):
        registry.make_policy(SchedulingSettings(placer="fifo"))
