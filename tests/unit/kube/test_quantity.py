"""Quantities: exact, rounded to the safe side, and refused where they would turn sums around."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.kube import quantities
from bireme.kube.quantities import QuantityError

AMOUNTS = st.integers(0, quantities.LARGEST)


@pytest.mark.parametrize(
    ("resource_name", "value", "amount"),
    [
        pytest.param("cpu", "500m", 500, id="millicores"),
        pytest.param("cpu", "1.5", 1500, id="fractional-cores"),
        pytest.param("cpu", 4, 4000, id="plain-int-cores"),
        pytest.param("cpu", 0.1, 100, id="float-reads-as-its-digits"),
        pytest.param("cpu", "0.1m", 1, id="a-tenth-of-a-millicore"),
        pytest.param("cpu", "1u", 1, id="a-microcore"),
        pytest.param("cpu", "100000000n", 100, id="nanocores"),
        pytest.param("memory", "1Ki", 1024, id="binary"),
        pytest.param("memory", "1k", 1000, id="decimal"),
        pytest.param("memory", "1.5Gi", 3 * 2**29, id="fractional-binary"),
        pytest.param("memory", "8Pi", 2**53, id="the-largest"),
        pytest.param("memory", "1e3", 1000, id="exponent"),
        pytest.param("memory", "1E3", 1000, id="upper-case-exponent"),
        pytest.param("memory", "1E-3", 1, id="negative-exponent"),
        pytest.param("memory", "128974848000m", 128974848, id="milli-bytes"),
        pytest.param("memory", 1e9, 10**9, id="float-bytes"),
        pytest.param("memory", "0E", 0, id="no-exabytes"),
        pytest.param("nvidia.com/gpu", "8", 8, id="gpus"),
        pytest.param("nvidia.com/gpu", 0, 0, id="none"),
        pytest.param("pods", "+.5e1", 5, id="sign-and-leading-point"),
        pytest.param("pods", "110.", 110, id="trailing-point"),
        pytest.param("pods", "-0", 0, id="minus-zero-is-zero"),
    ],
)
def test_a_quantity_reads_as_an_exact_integer(
    resource_name: str, value: str | float, amount: int
) -> None:
    assert quantities.parse_quantity(resource_name, value) == amount


def test_requests_round_up_and_allocatable_rounds_down() -> None:
    assert quantities.parse_quantity("cpu", "1.0001", rounding="up") == 1001
    assert quantities.parse_quantity("cpu", "1.0001", rounding="down") == 1000
    assert quantities.parse_quantity("memory", "100m", rounding="up") == 1
    assert quantities.parse_quantity("memory", "100m", rounding="down") == 0


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        pytest.param("-1", "is negative", id="negative-text"),
        pytest.param(-1, "is negative", id="negative-int"),
        pytest.param(-0.5, "is negative", id="negative-float"),
        pytest.param("", "cannot be read", id="empty"),
        pytest.param(" 1", "cannot be read", id="space-before"),
        pytest.param("1\n", "cannot be read", id="newline-after"),
        pytest.param("1 Gi", "cannot be read", id="space-inside"),
        pytest.param("1K", "cannot be read", id="upper-case-k"),
        pytest.param("1gi", "cannot be read", id="lower-case-suffix"),
        pytest.param("1GB", "cannot be read", id="not-a-suffix"),
        pytest.param("8 GPUs", "cannot be read", id="words"),
        pytest.param("1e", "cannot be read", id="half-an-exponent"),
        pytest.param("1e3k", "cannot be read", id="exponent-and-suffix"),
        pytest.param("1_000", "cannot be read", id="python-digits"),
        pytest.param("0x10", "cannot be read", id="hexadecimal"),
        pytest.param("\uff11", "cannot be read", id="full-width-digit"),
        pytest.param("\u0661", "cannot be read", id="arabic-digit"),
        pytest.param("nan", "cannot be read", id="nan-text"),
        pytest.param(".", "cannot be read", id="only-a-point"),
        pytest.param("1" * 65, "cannot be read", id="too-long-a-text"),
        pytest.param("1e9999999999", "cannot be read", id="an-exponent-that-would-never-end"),
        pytest.param(float("nan"), "is not finite", id="nan"),
        pytest.param(float("inf"), "is not finite", id="infinity"),
        pytest.param(True, "is not text or a number", id="bool"),
        pytest.param(None, "is not text or a number", id="none"),
        pytest.param(["1"], "is not text or a number", id="list"),
        pytest.param("1E30", "is above the largest", id="exponent-too-large"),
        pytest.param("9223372036854775808", "is above the largest", id="beyond-64-bits"),
        pytest.param(2**53 + 1, "is above the largest", id="one-too-many"),
        pytest.param(10**5000, "is outside", id="an-int-python-will-not-print"),
        pytest.param(1e300, "is above the largest", id="huge-float"),
    ],
)
def test_a_bad_quantity_is_refused_by_name_and_value(value: str | float, problem: str) -> None:
    with pytest.raises(QuantityError) as refused:
        quantities.parse_quantity("nvidia.com/gpu", value)

    message = str(refused.value)
    assert message.startswith("nvidia.com/gpu: quantity ")
    assert problem in message
    assert "write" in message, "a remedy is named"
    assert message.isascii()
    assert message.isprintable()
    assert refused.value.resource_name == "nvidia.com/gpu"


def test_a_refusal_escapes_what_could_forge_a_log_line() -> None:
    with pytest.raises(QuantityError) as refused:
        quantities.parse_quantity("cpu\n\x1b[31m", "1\nadmitted \u202e")

    assert str(refused.value).isascii()
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("resource_name", "amount", "text"),
    [
        pytest.param("cpu", 1500, "1500m", id="millicores"),
        pytest.param("cpu", 64000, "64", id="whole-cores"),
        pytest.param("cpu", 1_000_000, "1k", id="a-thousand-cores"),
        pytest.param("memory", 2**30, "1Gi", id="binary"),
        pytest.param("memory", 1536 * 2**20, "1536Mi", id="the-largest-exact-suffix"),
        pytest.param("memory", 1000, "1000", id="no-binary-suffix-fits"),
        pytest.param("hugepages-2Mi", 2**21, "2Mi", id="huge-pages"),
        pytest.param("nvidia.com/gpu", 8, "8", id="gpus"),
        pytest.param("pods", 0, "0", id="zero"),
    ],
)
def test_an_amount_is_written_canonically(resource_name: str, amount: int, text: str) -> None:
    assert quantities.format_quantity(resource_name, amount) == text


@pytest.mark.parametrize("amount", [-1, 2**53 + 1])
def test_an_amount_out_of_range_is_not_written(amount: int) -> None:
    with pytest.raises(QuantityError, match=r"memory: quantity .* is outside"):
        quantities.format_quantity("memory", amount)


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), AMOUNTS)
def test_what_is_written_reads_back(resource_name: str, amount: int) -> None:
    text = quantities.format_quantity(resource_name, amount)

    assert quantities.parse_quantity(resource_name, text, rounding="up") == amount
    assert quantities.parse_quantity(resource_name, text, rounding="down") == amount


@given(st.floats(0, 1e9), st.sampled_from(["", "n", "u", "m", "k", "Ki"]))
def test_up_and_down_are_at_most_one_unit_apart(number: float, suffix: str) -> None:
    text = f"{number:.9f}{suffix}"

    down = quantities.parse_quantity("cpu", text, rounding="down")

    assert 0 <= quantities.parse_quantity("cpu", text, rounding="up") - down <= 1


@given(st.text(max_size=70) | st.floats() | st.integers() | st.booleans() | st.none())
def test_anything_else_is_an_amount_in_range_or_a_refusal(value: str | float) -> None:
    try:
        amount = quantities.parse_quantity("memory", value)
    except QuantityError:
        return
    assert 0 <= amount <= quantities.LARGEST
