"""``bireme forecast compare``: the accuracy of every model on a series, and a forecast.

Every forecaster is fitted to the series without its last part and tested on that part, as are
persistence and the seasonal naive forecast. The best one is fitted again, to the whole series, and
forecasts the future. The table goes to standard output, all numbers to ``--json``, a picture to
``--plot``.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bireme.cli.arguments import UsageError, check_target, naming, number, write_results
from bireme.forecasting.forecasters import FORECASTERS
from bireme_lab.cli import forecast_report as report
from bireme_lab.cli.series import SeriesSpan, add_series_arguments, read_requested, span
from bireme_lab.training.gru import evaluation
from bireme_lab.training.recipes import missing

_SHARE: Final = 0.2
_PICTURES: Final = (".png", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
        help="the last part, for the test alone: a share, intervals or a time such as 14d; "
        "default: %(default)s",
    )
    _add_models(parser)
    add("--json", metavar="FILE", help="write all numbers; - for standard output, and no table")
    add("--plot", metavar="FILE", help="write a picture, forecast against actual: a PNG or SVG")


def _add_models(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--models",
        default="all",
        metavar="NAMES",
        help=f"several with commas between: {', '.join(FORECASTERS)}; default: all",
    )
    add(
        "--gru",
        default=evaluation.TRAIN,
        metavar="FOLDER",
        type=_network,
        help="folder of a trained network; shipped: the network that comes with Bireme, for "
        "hours; train: a new one for the series, which needs torch; default: %(default)s",
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
        help="quantile by which models are chosen, and the upper end of the interval; default: "
        "%(default)s",
    )


def run(options: argparse.Namespace) -> int:
    for argument, target in (("--json", options.json), ("--plot", options.plot)):
        check_target(argument, target)
    if options.plot and Path(options.plot).suffix not in _PICTURES:
        raise UsageError(
            f"argument --plot: {options.plot!r} is no picture to write; end it in "
            f"{' or '.join(_PICTURES)}"
        )
    comparison = _compare(options)
    if options.plot:
        with naming("--plot"), _needing("--plot"):
            report.draw(comparison, Path(options.plot))
    write_results(options, report.document(comparison), report.table(comparison))
    return 0


def _compare(options: argparse.Namespace) -> evaluation.ForecastComparison:
    read = read_requested(options)
    step = read.series.step_seconds
    names = list(FORECASTERS) if options.models == "all" else options.models.split(",")
    request = evaluation.ForecastRequest(
        file=options.series,
        read=read,
        names=tuple(dict.fromkeys(name.strip() for name in names)),
        horizon=options.horizon.steps(step, "--horizon"),
        test=options.test.steps(step, "--test")
        if isinstance(options.test, SeriesSpan)
        else max(1, round(options.test * len(read.series))),
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
        return evaluation.compare_forecasters(request)


@contextmanager
def _needing(argument: str) -> Iterator[None]:
    """Name ``argument`` in the error for a library that is not installed."""
    try:
        yield
    except ImportError as error:
        if remedy := missing(error):
            raise UsageError(f"argument {argument}: it {remedy}") from error
        raise


def _part(text: str) -> SeriesSpan | float:
    if "." not in text:
        return span(text)
    fault = "is no share; write for example 0.2, or intervals such as 336"
    return number(text, lambda value: 0 < value < 1, fault)


def _quantile(text: str) -> float:
    fault = "is no quantile above 0 and below 1; write for example 0.9"
    return number(text, lambda value: 0 < value < 1, fault)


def _network(text: str) -> str:
    if text not in (evaluation.TRAIN, evaluation.SHIPPED) and not Path(text).is_dir():
        raise argparse.ArgumentTypeError(
            f"there is no folder {text!r}; name one that bireme train gru wrote, shipped or train"
        )
    return text


def _alpha(text: str) -> float | None:
    if text == "fitted":
        return None
    return number(text, lambda value: 0 <= value <= 1, "is no weight; write 0 to 1, or fitted")
