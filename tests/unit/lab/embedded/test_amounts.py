"""Amounts of resources, in the form in which the API server stores them."""

import pytest

from bireme_lab.embedded.amounts import canonical


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1500", "1500"),
        ("2000", "2k"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("512Ki", "512Ki"),
        ("0Gi", "0"),
        (4, "4"),
        ("1e3", "1e3"),
        ("many", "many"),
        (None, None),
    ],
)
def test_an_amount_has_one_form(amount: object, expected: object) -> None:
    assert canonical(amount) == expected
