"""Tokens of an expression in CEL, for the names in it, before it is compiled."""

import re
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+|//[^\n]*)
    | (?P<text>
        (?:[rR][bB]?|[bB][rR])
        (?:\"{3}.*?\"{3} | '{3}.*?'{3} | "[^"\n]*" | '[^'\n]*')
      | [bB]?
        (?:\"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3}
          | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
      )
    | (?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    | (?P<number>\d\w*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class ExpressionTokens:
    """The tokens of an expression without space and comments, by their place in it.

    Attributes:
        texts: The whole expression in parts, of which a reader may replace some.
    """

    def __init__(self, expression: str) -> None:
        matches = list(_TOKEN.finditer(expression))
        self.texts = [match[0] for match in matches]
        self._parts = [i for i, match in enumerate(matches) if match.lastgroup != "space"]
        self._offsets = [match.start() for match in matches]
        self._names = {i for i in self._parts if matches[i].lastgroup == "name"}

    def __len__(self) -> int:
        return len(self._parts)

    def text(self, place: int) -> str:
        """Return a token; empty before the first and after the last."""
        return self.texts[self._parts[place]] if 0 <= place < len(self._parts) else ""

    def is_name(self, place: int) -> bool:
        return 0 <= place < len(self._parts) and self._parts[place] in self._names

    def replace(self, place: int, text: str) -> None:
        self.texts[self._parts[place]] = text

    def selections(self, root: str) -> Iterator[tuple[str, int]]:
        """Yield the fields that are selected from the variable ``root``, with the offset of each.

        The offset is that of the point before the field.
        """
        for place in range(len(self)):
            is_root = self.is_name(place) and self.text(place) == root
            if is_root and self.text(place - 1) != "." and self.text(place + 1) == ".":
                yield self.text(place + 2), self._offsets[self._parts[place + 1]]
