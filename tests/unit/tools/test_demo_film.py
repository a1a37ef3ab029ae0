"""The moving picture of the demo is what the screen showed, second by second."""

from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console
from rich.text import Text

from tools.demo.film import Film


def shown(now: float, console: Console) -> Text:
    return Text("█" * int(now), style="#ff0000") if now < 10 else Text("x", style="bold reverse")


def test_a_frame_is_what_was_drawn_and_no_second_has_two(tmp_path: Path) -> None:
    film = Film()
    for now in (1.0, 1.5, 2.5, 20.0):
        film.take(now, shown)
    path = tmp_path / "new" / "film.webp"
    film.save(path)
    with Image.open(path) as picture:
        assert getattr(picture, "n_frames", 1) == 3
        reds = []
        for frame in range(2):
            picture.seek(frame)
            colours = picture.convert("RGB").getcolors(2**24) or []
            reds.append(sum(count for count, colour in colours if colour == (255, 0, 0)))
    assert 0 < reds[0] < reds[1] <= 2 * reds[0] + 40


def test_a_film_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing has been shown"):
        Film().save(tmp_path / "film.webp")
