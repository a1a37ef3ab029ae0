"""Other values of internals: in this process, and on the command line of a program."""

import sys
from importlib import import_module

import pytest

from testbed.internals import PLACES, changed, command, split


@pytest.mark.parametrize("name", PLACES)
def test_an_internal_is_changed_within_the_block_and_no_longer(name: str) -> None:
    module, constant = PLACES[name]
    usual = getattr(import_module(module), constant)
    with changed(**{name: usual + 1}):
        assert getattr(import_module(module), constant) == usual + 1
    assert getattr(import_module(module), constant) == usual


def test_a_program_gets_its_own_internals_alone() -> None:
    values = {"plan_wait_seconds": 0.5, "write_concurrency": 1}
    prefix = [sys.executable, "-m", "testbed.internals"]
    assert command("bireme_operator", values) == [*prefix, "bireme_operator", "write_concurrency=1"]
    assert command("bireme_extender", values) == [
        *(*prefix, "bireme_extender", "plan_wait_seconds=0.5")
    ]
    assert command("bireme_extender", {"write_concurrency": 1}) == [
        *(sys.executable, "-m", "bireme_extender")
    ]


def test_an_unknown_internal_is_refused() -> None:
    with pytest.raises(KeyError, match="sweep_seconds"), changed(sweep_seconds=1.0):
        pass


def test_options_are_split_into_settings_and_internals() -> None:
    settings, internals = split({"outlook": True, "sweep_interval_seconds": 0.2})
    assert (settings, internals) == ({"outlook": True}, {"sweep_interval_seconds": 0.2})
