"""Durations: what is read as how many seconds, and what is refused."""

import pytest

from bireme.kube import quantities


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("2h30m", 9_000.0),
        ("1h0m1s", 3_601.0),
        ("0.5h", 1_800.0),
        ("87600h", 10 * 365 * 86_400.0),
        ("315360000s", 10 * 365 * 86_400.0),
        ("0.000000001s", 1e-9),
    ],
)
def test_hours_minutes_and_seconds_are_added_up(text: str, seconds: float) -> None:
    assert quantities.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "0s", "0h0m", "90", "-5m", "+5m", "5 m", "5m\n", "30m2h", "1h1h", "1d", "100ms"),
        *("1e3s", ".5h", "5.h", "1_0s", "\uff15m", "two hours", "9999999999h", "5M"),
    ],
)
def test_what_is_no_duration_above_zero_is_refused_with_the_value_and_the_remedy(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration above zero; write hours") as refused:
        quantities.parse_duration(text)
    assert ascii(text) in str(refused.value)
    assert str(refused.value).isascii()


@pytest.mark.parametrize("text", ["87600h1s", "99999h", "999999999h", "999999999m", "999999999s"])
def test_more_than_ten_years_are_refused_with_the_most_there_may_be(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text} is longer than ten years; write at most 87600h"):
        quantities.parse_duration(text)
