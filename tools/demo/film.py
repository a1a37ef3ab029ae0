"""A moving picture of the live view, for the README: one frame each second, as animated WebP."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Final

import matplotlib as mpl
from PIL import Image, ImageDraw, ImageFont
from rich.color import Color
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import MONOKAI

COLUMNS: Final = 120
LINES: Final = 40
_FONT: Final = Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"
_POINTS: Final = 13
_LINE_PIXELS: Final = 17
_SECONDS_EACH: Final = 1.0
_SHOWN_MILLISECONDS: Final = 400
_LAST_MILLISECONDS: Final = 4000
_Rgb = tuple[int, int, int]


class Film:
    """Frames of what a ``draw`` returns for a console of 120 columns by 40 lines."""

    def __init__(self) -> None:
        self._console = Console(
            width=COLUMNS,
            height=LINES,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
        )
        self._font = ImageFont.truetype(str(_FONT), _POINTS)
        self._column_pixels = round(self._font.getlength("M"))
        self._frames: list[Image.Image] = []
        self._next_seconds = 0.0

    def take(self, now: float, draw: Callable[[float, Console], RenderableType]) -> None:
        """Add a frame of ``now``, in seconds, unless the last one is younger than a second."""
        if now < self._next_seconds:
            return
        self._next_seconds = now + _SECONDS_EACH
        self._frames.append(self._painted(self._console.render_lines(draw(now, self._console))))

    def save(self, path: Path) -> None:
        """Write the film; ValueError if nothing was taken."""
        if not self._frames:
            raise ValueError(f"{path}: nothing has been shown")
        durations = [_SHOWN_MILLISECONDS] * (len(self._frames) - 1) + [_LAST_MILLISECONDS]
        first, *others = self._frames
        path.parent.mkdir(parents=True, exist_ok=True)
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=durations,
            loop=0,
            lossless=True,
            method=6,
        )

    def _painted(self, lines: list[list[Segment]]) -> Image.Image:
        size = COLUMNS * self._column_pixels, LINES * _LINE_PIXELS
        image = Image.new("RGB", size, tuple(MONOKAI.background_color))
        pen = ImageDraw.Draw(image)
        for row, line in enumerate(lines[:LINES]):
            column = 0
            for text, style, _ in line:
                self._write(pen, row, column, text, style or Style())
                column += len(text)
        return image

    def _write(
        self, pen: ImageDraw.ImageDraw, row: int, column: int, text: str, style: Style
    ) -> None:
        ink, paper = _rgb(style.color, is_ink=True), _rgb(style.bgcolor, is_ink=False)
        if style.reverse:
            ink, paper = paper, ink
        if style.dim:
            ink = _between(ink, paper)
        x, y = column * self._column_pixels, row * _LINE_PIXELS
        if paper != tuple(MONOKAI.background_color):
            end = x + len(text) * self._column_pixels - 1
            pen.rectangle((x, y, end, y + _LINE_PIXELS - 1), fill=paper)
        for at, letter in enumerate(text):  # each in its own column, whatever the font says
            if not letter.isspace():
                where = x + at * self._column_pixels, y
                pen.text(where, letter, font=self._font, fill=ink)


def _between(ink: _Rgb, paper: _Rgb) -> _Rgb:
    red, green, blue = ((2 * a + b) // 3 for a, b in zip(ink, paper, strict=True))
    return red, green, blue


def _rgb(color: Color | None, *, is_ink: bool) -> _Rgb:
    if color is None or color.is_default:
        chosen = MONOKAI.foreground_color if is_ink else MONOKAI.background_color
        return chosen[0], chosen[1], chosen[2]
    found = color.get_truecolor(MONOKAI, foreground=is_ink)
    return found.red, found.green, found.blue
