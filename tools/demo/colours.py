"""One colour and one letter per job, the same on the screen and in the picture."""

from collections.abc import Iterable
from string import ascii_uppercase
from typing import Final

_COLOURS: Final = (
    *("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#ff9da7"),
    *("#9c755f", "#86bcb6", "#d37295", "#a0cbe8", "#8cd17d", "#ffbe7d", "#b6992d", "#499894"),
    *("#d4a6c8", "#fabfd2", "#79706e", "#d7b5a6", "#5fa2ce", "#c85200", "#7b66d2", "#bab0ac"),
)
QUEUES: Final = {"production": "#d37295", "research": "#4e79a7", "batch": "#8cd17d"}


class Palette:
    """Letters and colours for jobs, dealt in their order; ``#rrggbb``."""

    def __init__(self, names: Iterable[str]) -> None:
        self._number = {name: number for number, name in enumerate(names)}

    def colour(self, name: str) -> str:
        number = self._number.get(name)
        return "#999999" if number is None else _COLOURS[number % len(_COLOURS)]

    def letter(self, name: str) -> str:
        number = self._number.get(name)
        return "?" if number is None else ascii_uppercase[number % len(ascii_uppercase)]
