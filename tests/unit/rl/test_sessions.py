"""A network that answers, or says in words why not; and never longer than it may."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest

from bireme.onnx.errors import AnswerError
from bireme.onnx.sessions import Array, Session, Shape
from bireme.rl.checkpoint import OUTPUTS
from testbed.networks import graphs

INPUTS: Mapping[str, Shape] = {"facts": ("gangs", 3)}
PATIENT = 60.0


def session(model: onnx.ModelProto | None = None) -> Session:
    model = model or graphs.weighted_sum(INPUTS, OUTPUTS["orderer"], (1, 10, 100))
    return Session(model.SerializeToString(), INPUTS, OUTPUTS["orderer"], "small/orderer.onnx")


def facts(*rows: tuple[float, float, float]) -> dict[str, Array]:
    return {"facts": np.array(rows, dtype=np.float32)}


def test_an_answer_is_one_number_per_row() -> None:
    answer = session().answer(facts((1, 2, 3), (4, 5, 6)), 2, PATIENT)
    assert answer.dtype == np.float64
    assert answer.tolist() == [321, 654]


def test_equal_rows_have_equal_answers_wherever_and_in_whatever_company_they_stand() -> None:
    chance = np.random.default_rng(3)
    rows = chance.standard_normal((97, 3), dtype=np.float32)
    net = session(
        graphs.weighted_sum(INPUTS, OUTPUTS["orderer"], chance.standard_normal(3).tolist())
    )
    together = net.answer({"facts": rows}, 97, PATIENT)
    for count in (1, 2, 5, 16):
        assert np.array_equal(
            net.answer({"facts": rows[7 : 7 + count]}, count, PATIENT), together[7 : 7 + count]
        )


@pytest.mark.parametrize(
    ("arrays", "rows", "words"),
    [
        ({"other": np.zeros((1, 3), np.float32)}, 1, "gives .'other'., stated are .'facts'."),
        ({"facts": np.zeros((1, 3))}, 1, "'facts' is float64 of shape .1, 3."),
        ({"facts": np.zeros(3, np.float32)}, 1, "is float32 of shape .3,., stated is float32"),
        ({"facts": np.zeros((2, 3), np.float32)}, 1, "axis 'gangs' of input 'facts' is 2, not 1"),
        ({"facts": np.zeros((1, 4), np.float32)}, 1, "axis 3 of input 'facts' is 4, not 3"),
        (facts((np.nan, 0, 0), (0, 0, 0)), 2, "1 of 2 answers are not finite"),
        (facts((3e38, 3e38, 3e38)), 1, "1 of 1 answers are not finite"),
    ],
)
def test_what_is_no_question_or_no_answer_is_described_in_words(
    arrays: dict[str, Array], rows: int, words: str
) -> None:
    with pytest.raises(AnswerError, match=f"^small/orderer.onnx.*{words}"):
        session().answer(arrays, rows, PATIENT)


def test_a_call_ends_at_its_time_limit_and_the_next_one_is_answered() -> None:
    slow, quick = session(graphs.slow(INPUTS, OUTPUTS["orderer"])), session()
    began = time.monotonic()
    with pytest.raises(AnswerError, match=r"took longer than 0\.2 s for 1 gangs"):
        slow.answer(facts((1, 2, 3)), 1, limit_seconds=0.2)
    assert time.monotonic() - began < 20  # without a limit it takes minutes
    assert quick.answer(facts((1, 0, 0)), 1, limit_seconds=PATIENT).tolist() == [1]


def test_a_call_over_its_time_does_not_end_another_one() -> None:
    slow, quick = session(graphs.slow(INPUTS, OUTPUTS["orderer"])), session()
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(slow.answer, facts((1, 2, 3)), 1, 0.2)
        while not late.done():
            assert quick.answer(facts((1, 2, 3)), 1, PATIENT).tolist() == [321]
        assert isinstance(late.exception(), AnswerError)


def test_many_threads_may_ask_at_once() -> None:
    net = session()

    def ask(number: int) -> bool:
        rows = facts(*[(number, 0, 0)] * (1 + number % 7))
        return bool((net.answer(rows, 1 + number % 7, PATIENT) == number).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(400)))
