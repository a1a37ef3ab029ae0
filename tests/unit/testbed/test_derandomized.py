"""Property tests of the profile ``test``, which draw alike in every run, whatever is imported."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

only_in_test = pytest.mark.skipif(
    settings.get_current_profile_name() != "test", reason="other profiles draw at random"
)
LISTS = 50


@only_in_test
def test_new_constants_of_the_code_change_no_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = draw()
    assert len(before) == LISTS
    source = tmp_path / "constants.py"
    source.write_text(f"MANY = {[7001 + n for n in range(500)]}\n")
    module = ModuleType("constants")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "constants", module)
    assert draw() == before


def draw() -> list[list[int]]:
    """Return all examples of a property, run once."""
    drawn = list[list[int]]()

    @settings(max_examples=LISTS)
    @given(st.lists(st.integers(0, 10_000), min_size=20))
    def each(numbers: list[int]) -> None:
        drawn.append(numbers)

    each()
    return drawn


@only_in_test
def test_a_state_machine_takes_the_same_steps_again() -> None:
    def steps() -> list[int]:
        taken = list[int]()

        class Walk(RuleBasedStateMachine):
            @rule(step=st.integers())
            def walk(self, step: int) -> None:
                taken.append(step)

        run_state_machine_as_test(Walk)
        return taken

    first = steps()
    assert len(first) > LISTS
    assert steps() == first
