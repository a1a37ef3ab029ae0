"""Policy names: every registered one can be made, a wrong one is answered with the nearest."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from bireme import policy_names, registry
from bireme.core.errors import SettingError
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.goodput import Goodput
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo


def test_the_default_settings_name_the_combined_priority_and_packing() -> None:
    policy = registry.make_policy(SchedulingSettings())
    assert isinstance(policy.orderer, CombinedPriority)
    assert isinstance(policy.placer, Packing)


def test_settings_choose_the_policy() -> None:
    policy = registry.make_policy(SchedulingSettings(orderer="fifo"))
    assert isinstance(policy.orderer, Fifo)


@pytest.mark.parametrize("name", sorted(policy_names.class_paths("orderer")))
def test_every_registered_orderer_can_be_made(name: str) -> None:
    assert callable(registry.make_orderer(name).order)


@pytest.mark.parametrize("name", sorted(policy_names.class_paths("placer")))
def test_every_registered_placer_can_be_made(name: str) -> None:
    assert callable(registry.make_placer(name).place)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("fif", "no orderer is called 'fif'; did you mean 'fifo'?", id="near"),
        pytest.param("xyz", "known: a2c, a2c-cnn, combined-", id="far"),
        pytest.param("", "known: a2c, a2c-cnn, combined-", id="empty"),
        pytest.param("xyz", "or package.module:Class for one of yours", id="own"),
    ],
)
def test_an_unknown_orderer_is_answered_with_the_nearest_known_one(name: str, hint: str) -> None:
    with pytest.raises(SettingError) as error:
        registry.make_orderer(name)
    assert hint in str(error.value)


def test_an_orderer_is_no_placer() -> None:
    with pytest.raises(SettingError, match="no placer is called 'fifo'"):
        registry.make_policy(SchedulingSettings(placer="fifo"))


def test_without_a_sizer_in_the_settings_measured_gangs_have_the_default_one() -> None:
    assert isinstance(registry.make_policy(SchedulingSettings()).sizer, Goodput)
    with pytest.raises(SettingError, match="no sizer is called 'packing'"):
        registry.make_policy(SchedulingSettings(sizer="packing"))


def test_the_default_rules_stand_behind_every_policy() -> None:
    rules = registry.make_policy(SchedulingSettings(orderer="random", placer="random")).rules
    assert rules is not None
    assert isinstance(rules.orderer, CombinedPriority)
    assert isinstance(rules.placer, Packing)


TABLES = {
    "orderer": policy_names.class_paths("orderer"),
    "placer": policy_names.class_paths("placer"),
    "sizer": policy_names.class_paths("sizer"),
}


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_the_tables_are_sorted_and_names_are_in_kebab_case(kind: str) -> None:
    names = list(TABLES[kind])
    assert names == sorted(names)
    assert all(name.replace("-", "").isalnum() and name == name.lower() for name in names)


def test_every_policy_says_in_one_line_what_it_does() -> None:
    described = registry.describe()
    assert [(kind, name) for kind, name, _ in described] == [
        (kind, name) for kind, table in TABLES.items() for name in table
    ]
    assert all(10 < len(summary) < 90 and summary.endswith(".") for _, _, summary in described)


@pytest.mark.parametrize("path", sorted({p for t in TABLES.values() for p in t.values()}))
def test_every_policy_names_its_source(path: str) -> None:
    module, _, name = path.partition(":")
    text = inspect.getdoc(getattr(import_module(module), name)) or ""
    assert "\nSource: " in text


# --- classes of one's own ---------------------------------------------------------------------

OWN = """
class Reversed:
    def order(self, gangs, snapshot):
        return []

class Demanding:
    def __init__(self, wanted):
        self.wanted = wanted

    def order(self, gangs, snapshot):
        return []

reversed_order = Reversed()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package ``own_policies`` with a module ``orders``, and one that cannot be imported."""
    package = tmp_path / "own_policies"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "orders.py").write_text(OWN)
    (package / "broken.py").write_text("import a_library_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_class_of_ones_own_is_loaded_by_its_path(own: None) -> None:
    orderer = registry.make_orderer("own_policies.orders:Reversed")
    assert type(orderer).__name__ == "Reversed"
    settings = SchedulingSettings(orderer="own_policies.orders:Reversed")
    assert type(registry.make_policy(settings).orderer) is type(orderer)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("own_policies.nothing:X", "module 'own_policies.nothing' cannot be imported"),
        ("nothing_at_all:X", "module 'nothing_at_all' cannot be imported: No module named"),
        ("own_policies.broken:X", "No module named 'a_library_that_is_not_there'; install it"),
        (":Reversed", "module '' cannot be imported"),
        (".orders:Reversed", "module '.orders' cannot be imported"),
        ("own_policies.orders:Reverse", "no class 'Reverse'; did you mean 'Reversed'?"),
        ("own_policies.orders:", "no class ''; name a class that it defines"),
        ("own_policies.orders:reversed_order", "has no class 'reversed_order'"),
        ("own_policies.orders:Demanding", "cannot be made: .*'wanted'; give its parameters"),
    ],
)
def test_a_path_that_leads_nowhere_is_answered_with_what_is_missing(
    own: None, path: str, message: str
) -> None:
    with pytest.raises(SettingError, match=message) as error:
        registry.make_orderer(path)
    assert repr(path) in str(error.value)


def test_a_class_that_lacks_its_method_is_refused_by_the_methods_name(own: None) -> None:
    path = "own_policies.orders:Reversed"
    with pytest.raises(SettingError, match="Reversed has no method 'place', which every placer"):
        registry.make_placer(path)
    with pytest.raises(SettingError, match="Reversed has no method 'sizes', which every sizer"):
        registry.make_sizer(path)
