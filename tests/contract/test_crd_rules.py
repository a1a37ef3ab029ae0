"""Every rule of the CRDs: what it accepts, what it refuses, in which words, without a cluster.

``tests/cluster/test_api_server_parity.py`` puts the same table to a real API server.
"""

import pytest

from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.schemas import complete_root
from bireme_lab.embedded.cel import rules
from testbed.cel.examples import ObjectExample, definitions, object_examples


@pytest.mark.parametrize("example", object_examples().values(), ids=lambda each: each.name)
def test_object_is_answered_as_the_table_says(example: ObjectExample) -> None:
    try:
        rules.judge(definitions()[example.new["kind"]], example.new, example.old)
        answer: tuple[int, str, str] = (0, "", "")
    except ApiRefusal as refusal:
        answer = (refusal.status, refusal.reason, refusal.message)
    assert answer == ((422, "Invalid", example.refusal) if example.refusal else (0, "", ""))


def test_every_rule_has_an_example_that_it_alone_refuses() -> None:
    expected = {
        (kind, *place)
        for kind, definition in definitions().items()
        for place in rules.places(rules.schema_of(definition))
    }
    refusing = set()
    for example in object_examples().values():
        kind = example.new["kind"]
        schema = rules.schema_of(definitions()[kind])
        made = complete_root(example.new, schema)
        broken = {fault.rule for fault in rules.faults(schema, made, example.old)}
        refusing |= {(kind, *place) for place in broken if len(broken) == 1}
    assert len(expected) >= 50
    assert expected - refusing == set()
