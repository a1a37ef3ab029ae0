"""Descriptions of errors, and the hint where another name was meant."""

import pytest

from bireme.core.errors import SettingError, error_text, nearest


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SettingError("wait_bound_seconds is 0; use at least 1"),) * 2,
        (ValueError("no number"), "ValueError: no number"),
        (KeyError("gpu"), "KeyError: 'gpu'"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_errors_of_others_are_named_and_our_own_speak_for_themselves(
    error: Exception, words: object
) -> None:
    assert error_text(error) == str(words)


def test_the_nearest_name_is_asked_for_and_where_none_is_near_all_are_listed() -> None:
    assert nearest("fivo", iter(["lifo", "fifo"])) == "did you mean 'fifo'?"
    assert nearest("zzz", ["a", "b"]) == "known: a, b"
