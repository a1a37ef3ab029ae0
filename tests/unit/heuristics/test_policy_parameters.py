"""Parameters of policies are refused where the policy is made, by name, with the remedy."""

import math
import re
from collections.abc import Callable

import pytest

from bireme.core.errors import SettingError
from bireme.heuristics.goodput import Goodput
from bireme.heuristics.measured_sizers import Slaq
from bireme.heuristics.search_orderers import Malo, Mosa, Rifling
from bireme.heuristics.tradl import TradlOrder, TradlSizer


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
