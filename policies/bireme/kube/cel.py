"""Expressions in CEL, the Common Expression Language, as Kubernetes 1.37 reads them.

The first expression imports the library: a cluster without Dynamic Resource Allocation does not pay
for it. Functions of Kubernetes stand in :mod:`bireme.kube.cel_functions`; an expression with a
function that is not there raises an error that names it. Costs are not counted.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from bireme.kube.cel_functions import FUNCTIONS, Function, check_rights

if TYPE_CHECKING:
    from cel_expr_python import cel

Rights = Callable[[Mapping[str, str]], bool]
"""Whether a check of the authorizer is allowed, by its parts: group, resource, name, verb, ..."""
AUTHORIZER: Final[Mapping[str, str]] = {"@type": "kubernetes.authorization.Authorizer"}
"""The value of the variable ``authorizer``."""

_TYPE_NAME: Final = re.compile(r"\b[A-Z]+\b")
_STATUS: Final = re.compile(r"[A-Z_]+: ")
# The words of Google's library in C++, and those of its library in Go, which Kubernetes has.
_IN_GO: Final = (
    (re.compile(r'Key not found in map : "?(.*?)"?$'), r"no such key: \1"),
    (re.compile(r"Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile("divide by zero"), "division by zero"),
    (re.compile(r'No value with name "(.*)" found in Activation'), r"no such attribute(s): \1"),
    (re.compile("No matching overloads found.*|Applying SELECT to .*"), "no such overload"),
)


_UNDECLARED: Final = re.compile(
    r"(<input>:\d+:)(\d+)(: undeclared reference to ')(\w+)((?:\.\w+)*)\.\w+"
    r"(' \(in container ''\)\n \| [^\n]*\n \| )\.*\^"
)


class CelError(ValueError):
    """An expression does not compile, or has no value."""


class Expression:
    """A compiled expression, which may be evaluated many times."""

    def __init__(self, compiled: "cel.Expression") -> None:
        self._compiled = compiled

    @property
    def result_type(self) -> str:
        """The type that the checker derives, as ``list(dyn)`` or ``map(string, int)``."""
        name = str(self._compiled.return_type().name()).replace("<", "(").replace(">", ")")
        return _TYPE_NAME.sub(lambda match: match[0].lower(), name)

    def value(self, variables: Mapping[str, Any], may: Rights | None = None) -> Any:
        """Return the value of the expression in plain Python.

        Args:
            variables: JSON values by name; a name that is missing is an error where it is needed.
            may: Answers the authorizer.

        Raises:
            CelError: the expression has no value, in the API server's words.
        """
        try:
            with check_rights(may):
                value = self._compiled.eval(data=dict(variables))
            plain = value.plain_value()
        except RuntimeError as error:
            raise CelError(_words(str(error))) from None
        except TypeError:
            raise CelError("the value is optional: end the expression with orValue()") from None
        if value.type().name() == "ERROR":
            raise CelError(_words(str(plain)))
        return plain


@lru_cache(maxsize=1024)
def compile_expression(expression: str, names: tuple[str, ...]) -> Expression:
    """Return ``expression`` compiled. It may use the variables ``names``.

    Raises:
        CelError: it does not compile; the message names what is unknown.
    """
    return compile_in(_environment(names), expression)


def compile_in(environment: "cel.Env", expression: str) -> Expression:
    """Return ``expression`` compiled in an environment.

    Raises:
        CelError: it does not compile; the message names what is unknown.
    """
    try:
        return Expression(environment.compile(expression))
    except RuntimeError as error:
        words = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise CelError(f"compilation failed: {_UNDECLARED.sub(_blame_root, words)}") from None


def _blame_root(match: re.Match[str]) -> str:
    """Return an error about ``a.b`` as Go's library words it: about ``a``, where that stands."""
    line, column, problem, root, middle, source = match.groups()
    place = int(column) - len(root) - len(middle)
    return f"{line}{place}{problem}{root}{source}{'.' * (place - 1)}^"


@lru_cache(maxsize=16)
def _environment(names: tuple[str, ...]) -> "cel.Env":
    return make_environment(names)


def make_environment(
    names: Iterable[str], functions: Iterable[Function] = (), messages: object = None
) -> "cel.Env":
    """Return an environment with Kubernetes' functions and more.

    Args:
        names: Variables, of any type.
        functions: Functions beside those of every environment.
        messages: A descriptor pool of protobuf with the messages that expressions construct.
    """
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_optional

    types = {
        "any": cel.Type.DYN,
        "bool": cel.Type.BOOL,
        "double": cel.Type.DOUBLE,
        "duration": cel.Type.DURATION,
        "int": cel.Type.INT,
        "list": cel.Type.List(cel.Type.DYN),
        "object": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
        "string": cel.Type.STRING,
    }
    overloads: dict[str, list[cel.Overload]] = {}
    for each in (*FUNCTIONS, *functions):
        overloads.setdefault(each.name, []).append(
            cel.Overload(
                "_".join((each.name, *each.parameters)),
                return_type=types[each.result],
                parameters=[types[name] for name in each.parameters],
                is_member=each.is_member,
                impl=each.body,
            )
        )
    return cel.NewEnv(
        descriptor_pool=messages,
        variables=dict.fromkeys(names, cel.Type.DYN),
        extensions=[ext_bindings.ExtBindings(), ext_optional.ExtOptional()],
        functions=[cel.FunctionDecl(name, each) for name, each in overloads.items()],
    )


def _words(error: str) -> str:
    words = _STATUS.sub("", error, count=1)
    for pattern, in_go in _IN_GO:
        if match := pattern.fullmatch(words):
            return match.expand(in_go)
    return words
