"""Random streams that depend on names alone."""

from bireme_lab.simulator.physics.model import stream


def test_equal_names_give_equal_numbers_and_others_do_not() -> None:
    first = stream(1, "failure", "node-0").random(4).tolist()
    assert stream(1, "failure", "node-0").random(4).tolist() == first
    others = [(2, "failure", "node-0"), (1, "straggler", "node-0"), (1, "failure", "node-1")]
    assert all(stream(*other).random(4).tolist() != first for other in others)


def test_names_are_not_glued_together() -> None:
    assert stream(1, "a", "bc").random() != stream(1, "ab", "c").random()
    assert stream(1, "job", 12).random() != stream(1, "job", "12").random()
