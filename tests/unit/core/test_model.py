r"""The core against a plain truth: whatever happens to a cluster, no decision breaks an invariant.

What happens is drawn by :mod:`testbed.model.machine`, what must hold is in
:mod:`testbed.model.invariants`; that these see anything is shown in
``test_model_finds_bugs.py``.
More of it, at random, as long as it takes::

    BIREME_MODEL_RUNS=2000 .venv/bin/python -m pytest tests/unit/core/test_model.py \
        --hypothesis-profile verify
"""

import os

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from testbed.model.machine import STEPS, Machine

RUNS = int(os.environ.get("BIREME_MODEL_RUNS", "25"))


def test_no_decision_in_the_life_of_a_cluster_breaks_an_invariant() -> None:
    lives = settings(max_examples=RUNS, stateful_step_count=STEPS)
    run_state_machine_as_test(Machine, settings=lives)
