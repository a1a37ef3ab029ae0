"""``bireme forecast``: how well a series can be forecast, by whom, and what comes next.

Every forecaster is fitted to what lies before the last part of the series and tested on that part,
beside persistence and the season before; the best one is fitted once more and forecasts on. The
table goes to standard output, all numbers to ``--json``, a picture to ``--plot``. The GRU is
trained on the series where torch is installed; what a network was trained on is always said.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bireme.cli import forecast_report as report
from bireme.cli.arguments import STANDARD_OUTPUT, UsageError, check_target, naming, write_text
from bireme.cli.series import SeriesSpan, add_series_arguments, read_asked, span
from bireme.forecasting.forecasters import FORECASTERS
from bireme.training.gru.evaluation import (
    SHIPPED,
    TRAIN,
    ForecastComparison,
    ForecastRequest,
    compare_forecasters,
)
from bireme.training.recipes import missing

_SHARE: Final = 0.2
_PICTURES: Final = (".png", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Teach ``parser`` what ``bireme forecast`` understands."""
    add_series_arguments(parser, required=True)
    add = parser.add_argument
    add(
        "--horizon",
        type=span,
        default=span("1"),
        metavar="TIME",
        help="how far ahead, in intervals or as 1d; default: 1",
    )
    add(
        "--test",
        type=_part,
        default=_SHARE,
        metavar="PART",
        help="the last part, which no model is fitted to: a share, intervals or a time such as "
        "14d; default: %(default)s",
    )
    _add_models(parser)
    add("--json", metavar="FILE", help="write all numbers; - for standard output, and no table")
    add("--plot", metavar="FILE", help="write a picture, forecast against actual: a PNG or SVG")


def _add_models(parser: argparse.ArgumentParser) -> None:
    """Who is tried, and by what one is chosen."""
    add = parser.add_argument
    add(
        "--models",
        default="all",
        metavar="NAMES",
        help=f"several with commas between: {', '.join(FORECASTERS)}; default: all",
    )
    add(
        "--gru",
        default=TRAIN,
        metavar="FOLDER",
        type=_network,
        help="of a network trained before; shipped: the one that comes with Bireme, for hours; "
        "train: one for the series, where torch is installed; default: %(default)s",
    )
    add(
        "--alpha",
        type=_alpha,
        default=0.6,
        metavar="A",
        help="weight of the GRU in LSP, 0 to 1, or fitted; default: %(default)s",
    )
    add(
        "--quantile",
        type=_quantile,
        default=0.9,
        metavar="Q",
        help="what models are chosen by, and the upper end of the interval; default: %(default)s",
    )


def run(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Judge forecasters on a series and forecast on; the exit status.

    Raises:
        UsageError: an argument cannot be used, or what it takes is not installed.
    """
    for argument, target in (("--json", options.json), ("--plot", options.plot)):
        check_target(argument, target)
    if options.plot and Path(options.plot).suffix not in _PICTURES:
        raise UsageError(
            f"argument --plot: {options.plot!r} is no picture to write; end it in "
            f"{' or '.join(_PICTURES)}"
        )
    comparison = _compared(options)
    command = shlex.join(["bireme", *arguments])
    if options.plot:
        _draw(comparison, Path(options.plot))
    if options.json:
        text = json.dumps(report.document(comparison, command), indent=1, allow_nan=False)
        with naming("--json"):
            write_text(options.json, text + "\n")
    if options.json != STANDARD_OUTPUT:
        sys.stdout.write(report.table(comparison))
    return 0


def _compared(options: argparse.Namespace) -> ForecastComparison:
    read = read_asked(options)
    step = read.series.step_seconds
    names = list(FORECASTERS) if options.models == "all" else options.models.split(",")
    request = ForecastRequest(
        file=options.series,
        read=read,
        names=tuple(dict.fromkeys(name.strip() for name in names)),
        horizon=options.horizon.steps(step, "--horizon"),
        test=_steps_of(options.test, len(read.series), step),
        quantile=options.quantile,
        alpha=options.alpha,
        gru=options.gru,
    )
    if not request.horizon <= request.test < len(read.series):
        raise UsageError(
            f"argument --test: {request.test} of {len(read.series)} intervals cannot be the test "
            f"of forecasts {request.horizon} ahead; take at least that many, and leave some to fit"
        )
    with naming("--models, --test"), _needing("--models"):
        return compare_forecasters(request)


@contextmanager
def _needing(argument: str) -> Iterator[None]:
    """A library that is not installed is what ``argument`` asks too much for."""
    try:
        yield
    except ImportError as error:
        if remedy := missing(error):
            raise UsageError(f"argument {argument}: it {remedy}") from error
        raise


def _draw(comparison: ForecastComparison, target: Path) -> None:
    with naming("--plot"), _needing("--plot"):
        from bireme.cli.forecast_report import draw

        draw(comparison, target)


def _steps_of(part: SeriesSpan | float, intervals: int, step_seconds: int) -> int:
    if isinstance(part, SeriesSpan):
        return part.steps(step_seconds, "--test")
    return max(1, round(part * intervals))


def _part(text: str) -> SeriesSpan | float:
    return _share(text) if "." in text else span(text)


def _share(text: str) -> float:
    return _between_0_and_1(text, "is no share; write 0.2, say, or intervals such as 336")


def _quantile(text: str) -> float:
    return _between_0_and_1(text, "is no quantile above 0 and below 1; write 0.9, say")


def _between_0_and_1(text: str, fault: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} {fault}")
    return value


def _network(text: str) -> str:
    if text not in (TRAIN, SHIPPED) and not Path(text).is_dir():
        raise argparse.ArgumentTypeError(
            f"there is no folder {text!r}; name one that bireme train gru wrote, shipped or train"
        )
    return text


def _alpha(text: str) -> float | None:
    if text == "fitted":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no weight; write 0 to 1, or fitted")
    return value
