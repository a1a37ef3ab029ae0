"""Documents and bytes with something wrong, drawn by hypothesis from good ones.

What is drawn from nothing is refused at the first field; what is wrong in one place only gets as
far as the code behind the fields before it.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from hypothesis import strategies as st

Path = tuple[str | int, ...]

ODD: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, 1e308, -0.0),
    *("", "0", "-1", "1e400", "1" * 400, "NaN", "9" * 20, "0.1m", "1Ki", "500m", "٣", "½"),
    *("\x00", "\u202e", "a/b", "a" * 300, "{}", "In", "Foo", "*", "1h", "1h1m1s", "-5s"),
    *("2026-01-01T00:00:00Z", "9999-99-99T99:99:99Z", "0-9999", "9-0", "0,0"),
    *([], [None], [[]], {}, {"": None}, {"a": {"b": []}}),
)
"""Values that somebody once was not ready for."""
ANYTHING: Final = st.sampled_from(ODD) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """Return a good document with one to four things wrong, now and then none."""
    changed = deepcopy(document)
    for _ in range(draw(st.integers(0, 4))):
        places = list(_places(changed))
        if not places:
            return deepcopy(draw(ANYTHING))
        *above, last = draw(st.sampled_from(places))
        parent: Any = changed
        for step in above:
            parent = parent[step]
        match draw(st.sampled_from(("replace", "drop", "twice", "swap"))):
            case "replace":
                parent[last] = deepcopy(draw(ANYTHING))
            case "drop":
                del parent[last]
            case "twice" if isinstance(last, int):  # of a list
                parent.append(deepcopy(parent[last]))
            case _:  # something good in a wrong place
                parent[last] = deepcopy(_at(changed, draw(st.sampled_from(places))))
    return changed


@st.composite
def damaged(draw: st.DrawFn, text: bytes) -> bytes:
    """Return good bytes cut, with some of them replaced, or with others between them."""
    changed = bytearray(text)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(changed)))
        length = draw(st.integers(0, 8))
        changed[at : at + length] = draw(st.binary(max_size=8))
    if draw(st.booleans()):
        del changed[draw(st.integers(0, len(changed))) :]
    return bytes(changed)


def as_json(document: Any) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    if not isinstance(value, dict | list):
        return
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from _places(child, (*path, key))


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value
