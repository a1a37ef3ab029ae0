"""Conditions of a status: their content and transition times."""

from typing import Any

import pytest

from bireme.core.reasons import Reason
from bireme.kube import quantities
from bireme.kube.conditions import cleaned, with_condition

CREATED, LATER = 1_000_000.0, 1_000_100.0


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """Type to (status, reason, transition time)."""
    return {
        c["type"]: (c["status"], c["reason"], c["lastTransitionTime"]) for c in status["conditions"]
    }


@pytest.mark.parametrize("bad", ["\n", "\x00", "\x1b[31m", "\u2028", "\u202e", "\x7f", "\ud800"])
def test_control_characters_never_reach_a_terminal(bad: str) -> None:
    shown = cleaned(f"a{bad}b")
    assert shown.isprintable()
    assert (shown[0], shown[-1]) == ("a", "b")


def test_letters_of_any_alphabet_are_kept() -> None:
    assert cleaned("größe 大きい 🚀") == "größe 大きい 🚀"


def test_a_long_message_is_cut_with_a_mark() -> None:
    assert cleaned("x" * 1000) == "x" * 1000
    assert cleaned("x" * 1001) == "x" * 999 + "…"


def test_a_condition_keeps_its_transition_time_until_its_truth_changes() -> None:
    status: dict[str, Any] = {}
    with_condition(status, "Admitted", False, Reason.WAITING_FOR_CAPACITY, "a", CREATED)
    with_condition(status, "Admitted", False, Reason.OVER_QUEUE_LIMIT, "b", LATER)
    first = quantities.format_timestamp(CREATED)
    assert conditions(status) == {"Admitted": ("False", "OverQueueLimit", first)}
    with_condition(status, "Admitted", True, Reason.ADMITTED, "c", LATER)
    assert conditions(status) == {
        "Admitted": ("True", "Admitted", quantities.format_timestamp(LATER))
    }


def test_setting_a_condition_changes_neither_its_neighbours_nor_the_old_status() -> None:
    before: dict[str, Any] = {}
    with_condition(before, "Running", True, Reason.GANG_RUNNING, "", CREATED)
    copy = dict(before)
    with_condition(copy, "Admitted", True, Reason.ADMITTED, "", LATER)
    assert [c["type"] for c in copy["conditions"]] == ["Admitted", "Running"]
    assert [c["type"] for c in before["conditions"]] == ["Running"]
