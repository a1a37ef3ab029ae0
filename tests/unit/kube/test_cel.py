"""CEL as Kubernetes reads it: its own functions, and errors in the words of the API server."""

import json
from typing import Any

import pytest

from bireme.kube import cel

SOME = {"a": 1, "b": [1, 2], "c": None, "d": {"x-y": "z"}, "t": "text", "f": 2.5, "n": 1.0}


def value(expression: str, **variables: Any) -> Any:
    names = tuple(sorted(variables))
    return cel.compile_expression(expression, names).value(variables)


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("self.a == 1 && self.f > 2 && self.c == null && self.n == 1", True),
        ("has(self.a) && !has(self.z) && has(self.c)", True),
        ("'x-y' in self.d && self.d['x-y'] == 'z'", True),
        ("self.?z.orValue('none')", "none"),
        ("self.?a.hasValue() && self[?'b'].hasValue()", True),
        ("cel.bind(x, self.a, x + x)", 2),
        ("dyn(self.b) + [self.t]", [1, 2, "text"]),
        ("self.b.map(each, each * 2).filter(each, each > 2)", [4]),
        ("self.z == 1 || self.a == 1", True),
        ("self.t.matches('^te+xt$')", True),
        ("duration('1h30m') > duration('89m')", True),
        # strings
        ("'a,b'.split(',') + ['A'.lowerAscii()]", ["a", "b", "a"]),
        ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
        ("'a,b,c'.split(',', 0)", []),
        ("['a', 'b'].join() + ['a', 'b'].join('-')", "aba-b"),
        ("'tacocat'.indexOf('c') + 'tacocat'.lastIndexOf('c')", 6),
        ("'hello'.substring(1, 3) + 'hello'.charAt(4) + 'hello'.charAt(5)", "elo"),
        ("' a '.trim() + 'äb'.upperAscii() + 'aaa'.replace('a', 'b', 2)", "aäBbba"),
        # lists and sets
        ("[1, 2].sum() + [].sum() + [3, 4].max() - [3, 4].min()", 4),
        ("[1.5, 2.5].sum()", 4.0),
        ("[1, 2, 2].isSorted() && ![2, 1].isSorted()", True),
        ("[1, 2, 1].indexOf(1) + [1, 2, 1].lastIndexOf(1) + ['a'].indexOf('b')", 1),
        ("sets.contains([1, 2], [2]) && !sets.contains([1], [2])", True),
        ("sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1], [1, 2])", True),
        # quantities and versions
        ("quantity('1') == quantity('1000m') && quantity('-1').sign() == -1", True),
        ("isQuantity('1.5Gi') && isQuantity('-2') && !isQuantity('8 GB') && !isQuantity('')", True),
        ("quantity('2k').isGreaterThan(quantity('1Ki'))", True),
        ("quantity('1Ki').isLessThan(quantity('1k'))", False),
        (
            "quantity('1').add(quantity('500m')).add(1).sub(quantity('1')).compareTo(quantity('1500m'))",
            0,
        ),
        ("quantity('5').sub(2).asInteger()", 3),
        ("quantity('500m').isInteger() || !quantity('3').isInteger()", False),
        ("quantity('500m').asApproximateFloat()", 0.5),
        ("semver('1.10.0').isGreaterThan(semver('1.9.9'))", True),
        ("semver('1.2.3').major() + semver('1.2.3').minor() + semver('1.2.3').patch()", 6),
    ],
)
def test_expression_has_the_value_that_it_has_in_kubernetes(expression: str, answer: Any) -> None:
    assert value(expression, self=SOME) == answer


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("%s and %s", ["a", 1], "a and 1"),
        ("%s", [["a", 'b"c', 1, True, None]], '["a", "b\\"c", 1, true, null]'),
        ("%s", [{"b": 1, "a": ["x"]}], '{"a":["x"], "b":1}'),
        ("%s %s %s %s", [2.0, 2.5, 1e21, 1e-7], "2 2.5 1e+21 1e-07"),
        ("%s %s", [123456789012345678.0, 0.0001], "123456789012345680 0.0001"),
        ("%s", [[2.5]], "[2.500000]"),
        ("100%% of %d", [7], "100% of 7"),
    ],
)
def test_format_writes_as_cel_go_does(template: str, values: list[Any], text: str) -> None:
    assert value(f"{json.dumps(template)}.format(self)", self=values) == text


def test_format_writes_durations_as_literals_in_lists_alone() -> None:
    assert value('"%s %s".format([duration("90s"), [duration("90s")]])') == (
        '90s [duration("90s")]'
    )


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("self.z", "no such key: z"),
        ("self.a.b.c == 1", "no such overload"),
        ("self.b[5]", "index out of bounds: 5"),
        ("1 / (self.a - 1)", "division by zero"),
        ("self.a + 'x'", "no such overload"),
        ("quantity(self.a)", "no such overload"),
        ("quantity('x')", "quantities must match the regular expression"),
        ("quantity('1').isLessThan(semver('1.0.0'))", "no such overload"),
        ("quantity('500m').asInteger()", "cannot convert value to integer"),
        ("semver('1.2.3-rc.1')", "is no version of three numbers; others are not built"),
        ("quantity('1').major()", "no such overload"),
        ("[].max()", "max called on empty list"),
        ("'a'.substring(0, 2)", "index out of range: 0, 2"),
        ("'a'.charAt(-1)", "index out of range: -1"),
        ("'%s'.format([])", "index 0 out of range"),
        ("'%d'.format(['a'])", "decimal clause can only be used on integers"),
        ("'%x'.format([1])", "clause %x of format is not built; use %s or %d"),
        ("'%s'.format([quantity('1')])", "string clause of format takes no dict"),
        ("self.?a", "end the expression with orValue()"),
        ("other == 1", "undeclared reference to 'other'"),
        # These are not built, and named.
        ("ip('10.0.0.1').family() == 4", "undeclared reference to 'ip'"),
        ("self.t.find('t') == 't'", "undeclared reference to 'find'"),
        ("self.a == ", "Syntax error"),
    ],
)
def test_expression_without_a_value_is_an_error_that_names_it(expression: str, words: str) -> None:
    with pytest.raises(cel.CelError) as caught:
        value(expression, self=SOME)
    assert words in str(caught.value)


def test_variable_that_is_missing_is_an_error_only_where_it_is_needed() -> None:
    expression = cel.compile_expression("self.a == 1 || other", ("other", "self"))
    assert expression.value({"self": SOME}) is True
    with pytest.raises(cel.CelError, match=r"no such attribute.*other"):
        expression.value({"self": {"a": 2}})


def test_authorizer_is_asked_for_what_the_expression_names() -> None:
    checks: list[dict[str, str]] = []

    def may(check: Any) -> bool:
        checks.append(dict(check))
        return bool(check["verb"] == "use")

    queue = "authorizer.group('g').resource('queues').namespace('a').name('n')"
    pods = "authorizer.serviceAccount('a', 'b').group('').resource('pods').subresource('binding')"
    expression = cel.compile_expression(
        f"{queue}.check('use').allowed() && !{pods}.check('create').allowed()", ("authorizer",)
    )
    assert expression.value({"authorizer": cel.AUTHORIZER}, may) is True
    assert checks == [
        {"group": "g", "resource": "queues", "namespace": "a", "name": "n", "verb": "use"},
        {
            "user": "system:serviceaccount:a:b",
            "group": "",
            "resource": "pods",
            "subresource": "binding",
            "verb": "create",
        },
    ]


def test_authorizer_that_nobody_answers_is_an_error_and_no_refusal() -> None:
    allowed = "authorizer.group('').resource('pods').check('get').allowed()"
    expression = cel.compile_expression(f"!{allowed}", ("authorizer",))
    with pytest.raises(cel.CelError, match="no such attribute"):
        expression.value({"authorizer": cel.AUTHORIZER})


@pytest.mark.parametrize("expression", ["(" * 200 + "1", "a." * 5000 + "b", "[" * 5000])
def test_expression_that_is_nested_without_bound_is_an_error(expression: str) -> None:
    with pytest.raises(cel.CelError):
        value(expression, a=1)
