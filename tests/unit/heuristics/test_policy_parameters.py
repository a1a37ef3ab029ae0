"""Parameters of policies: named in text, and refused by name, with the bounds and the remedy."""

import math
import re
from collections.abc import Callable

import pytest

from bireme import registry
from bireme.core.errors import SettingError
from bireme.core.gangs import Gang
from bireme.core.parameters import parameters_of, query_of, read_parameters
from bireme.core.policy import PARTS, PartName
from bireme.core.queues import Queue
from bireme.heuristics.goodput import Goodput
from bireme.testing import a_gang, a_node, a_snapshot
from bireme_lab.heuristics.measured_sizers import Slaq
from bireme_lab.heuristics.search_orderers import Malo, Mosa, Rifling
from bireme_lab.heuristics.tradl import TradlOrder, TradlSizer


@pytest.mark.parametrize(
    ("policy", "name", "value", "text"),
    [
        (Goodput, "fairness_power", 1.5, "from -10 to 1"),
        (Goodput, "restart_seconds", -1.0, "at least 0"),
        (Malo, "generations", -1, "at least 0"),
        (Malo, "population", 7, "at least 8"),
        (Mosa, "generations", -1, "at least 0"),
        (Mosa, "population", 0, "at least 1"),
        (Rifling, "episodes", -1, "at least 0"),
        (Rifling, "exploration", math.nan, "from 0 to 1"),
        (Rifling, "exploration", -0.1, "from 0 to 1"),
        (Slaq, "epoch_seconds", 0.0, "at least 1"),
        (TradlOrder, "first_target", 1.1, "from 0 to 1"),
        (TradlSizer, "first_target", -0.1, "from 0 to 1"),
    ],
)
def test_a_parameter_out_of_range_is_refused(
    policy: Callable[..., object], name: str, value: float, text: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(f"{name} is {value}; it must be {text}")):
        policy(**{name: value})


def order_of(name: str, *gangs: Gang, queue: Queue | None = None) -> list[str]:
    queues = [queue] if queue else []
    snapshot = a_snapshot([a_node("n")], *gangs, queues=queues, now=100.0)
    return [entry.gang.uid for entry in registry.make_orderer(name).order(gangs, snapshot)]


def test_a_threshold_in_the_name_changes_the_order() -> None:
    served = a_gang("served", attained_seconds=5000.0, arrived=0.0)
    new = a_gang("new", arrived=1.0)
    assert order_of("tiresias-las", served, new) == ["new", "served"]
    assert order_of("tiresias-las?threshold_device_seconds=30000", served, new) == ["served", "new"]


def test_a_weight_in_the_name_counts_before_that_of_the_settings() -> None:
    classy, patient = a_gang("classy", priority=10, arrived=99.0), a_gang("patient", arrived=0.0)
    queue = Queue("default", wait_bound_seconds=100)
    waits = "combined-priority?wait_weight=0.9&job_weight=0.01"
    assert order_of("combined-priority", classy, patient, queue=queue) == ["patient", "classy"]
    assert order_of("combined-priority?wait_weight=0", classy, patient, queue=queue) == [
        "classy",
        "patient",
    ]
    assert order_of(waits, classy, patient, queue=queue) == ["patient", "classy"]


def test_gittins_beyond_its_last_level_has_no_index() -> None:
    old = a_gang("old", attained_seconds=300.0)
    snapshot = a_snapshot([a_node("n")], old)
    by_name = registry.make_orderer
    assert by_name("tiresias-gittins").order([old], snapshot)[0].score > 0
    assert by_name("tiresias-gittins?levels=2").order([old], snapshot)[0].score == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiresias-las?threshold_device_second=3", "did you mean 'threshold_device_seconds'?"),
        ("tiresias-las?promote_knob=0", "promote_knob is 0.0; it must be above 0"),
        ("tiresias-las?promote_knob=", "promote_knob is ''; it must be a finite number above 0"),
        ("tiresias-gittins?levels=2.5", "levels is '2.5'; it must be a whole number from 1 to 64"),
        ("tetris?remaining_work_weight=nan", "remaining_work_weight is 'nan'; it must be a finite"),
        ("random?seed=1&seed=2", "seed is given twice in 'seed=1&seed=2'; leave one out"),
        ("fifo?levels=2", "no parameter is called 'levels', given as '2'; it has no parameters"),
        ("combined-priority?user_weight=-1", "user_weight is -1.0; it must be at least 0"),
        (
            "combined-priority?user_weight=0&job_weight=0&wait_weight=0&parallelism_weight=0",
            "their sum must be above 0",
        ),
    ],
)
def test_a_bad_parameter_in_a_name_is_answered_with_what_it_may_be(name: str, message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)) as error:
        registry.make_orderer(name)
    assert f"orderer {name!r}: " in str(error.value)


@pytest.mark.parametrize(
    ("part", "name"),
    [(part, name) for part in PARTS for name in registry.names(part)],
)
def test_every_parameter_is_told_and_takes_its_own_default(part: PartName, name: str) -> None:
    """What ``bireme policies`` tells of it is whole, and the default is within the bound."""
    maker = registry.maker_of(part, name)
    for parameter in parameters_of(maker).values():
        assert parameter.bound is not None
        assert 10 < len(parameter.about) < 120
        if parameter.default is not None:
            assert read_parameters(maker, {parameter.name: parameter.default}) == {
                parameter.name: parameter.default
            }
        assert any(str(parameter) in words for _, words in registry.explain(name))


def test_the_text_of_parameters_is_the_same_for_equal_ones_and_read_back_whole() -> None:
    given = {"promote_knob": 8, "threshold_device_seconds": 1e20}
    text = query_of(given)
    assert text == query_of({"threshold_device_seconds": 1e20, "promote_knob": 8.0})
    maker = registry.maker_of("orderer", "tiresias-las")
    assert read_parameters(maker, text) == read_parameters(maker, given) == given


def test_a_class_with_hints_of_any_kind_has_no_parameters_and_is_made() -> None:
    class Own:
        def __init__(self, x: "a number" = 3) -> None:  # type: ignore[valid-type]  # noqa: F722
            self.x = x

    assert parameters_of(Own) == {}
    assert read_parameters(Own, "") == {}
