"""``bireme train``: train a learned policy, or the network of a forecast.

Several processes of ``torchrun -m bireme_lab.training NAME`` train one policy together. Nothing
that needs torch is imported before training begins.
"""

import argparse
import shlex
import sys
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from bireme.cli.arguments import UsageError, naming, number, whole
from bireme.cli.own_policies import find_own
from bireme_lab.cli.series import add_series_arguments, read_requested, span
from bireme_lab.simulator.reports.terminal import duration
from bireme_lab.training import recipes

if TYPE_CHECKING:
    from bireme_lab.training.runs import TrainingRun


NAMES: Final = ", ".join([*recipes.RECIPES, *recipes.FORECASTERS])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help=f"{NAMES}, or package.module:Class of your own")
    add("--out", type=Path, metavar="DIR", help="output folder; default: runs/NAME")
    add("--seed", type=_seed, default=0, metavar="N", help="default: %(default)s")
    add(
        "--minutes",
        type=_minutes,
        default=30.0,
        metavar="M",
        help="time limit; default: %(default)g",
    )
    add(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="device of the networks; envs stay on the CPU; default: %(default)s",
    )
    add(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="folder of traces, for recipes that learn from them",
    )
    add("--resume", action="store_true", help="continue the run in DIR, if there is one")
    add("--smoke", action="store_true", help="check that everything works, in a minute")
    forecasts = parser.add_argument_group(f"for {', '.join(recipes.FORECASTERS)}")
    add_series_arguments(forecasts, required=False)
    forecasts.add_argument(
        "--horizon",
        type=span,
        default=span("48"),
        metavar="TIME",
        help="horizon of the forecast, in intervals or as 1d; default: 48",
    )


def run(options: argparse.Namespace) -> int:
    if options.data is not None and not options.data.is_dir():
        raise UsageError(f"argument --data: there is no folder {str(options.data)!r}; create it")
    recipe = _recipe(options)
    if options.device not in (devices := getattr(recipe, "devices", ("cpu",))):
        raise UsageError(
            f"argument --device: {options.name} learns only on {' or '.join(devices)}; leave it out"
        )
    try:
        from bireme_lab.training.distributed import start_from_environment
        from bireme_lab.training.networks import device_called
    except ImportError as error:
        raise UsageError(f"training {recipes.missing(error) or error}") from error
    with naming("--device"):
        device_called(options.device)
    with start_from_environment():
        training_run = _run(options)
        folder = recipe.train(training_run)
        training_run.finish()
        if training_run.is_first:
            sys.stdout.write("\n".join(_summary(training_run, recipe, folder)) + "\n")
    return 0


def _recipe(options: argparse.Namespace) -> recipes.Trainable:
    """Return the recipe called NAME; a forecaster's is for the series, if one is given."""
    if options.name in recipes.FORECASTERS:
        if options.series and options.data:
            raise UsageError("argument --data: cannot be used with --series; leave one out")
        series = read_requested(options).series if options.series else None
        horizon = options.horizon.steps(series.step_seconds if series else 3600, "--horizon")
        with naming("NAME"):
            return recipes.load_forecaster(options.name, series, horizon)
    if options.series:
        raise UsageError(
            f"argument --series: {options.name} learns no series; "
            f"{', '.join(recipes.FORECASTERS)} does"
        )
    find_own([options.name])
    with naming("NAME"):
        return recipes.load_recipe(options.name)


def _run(options: argparse.Namespace) -> "TrainingRun":
    from bireme_lab.training.runs import TrainingRun

    with naming("--out"):
        return TrainingRun(
            options.name,
            options.out or Path("runs") / options.name.replace(":", "."),
            seed=options.seed,
            scale="smoke" if options.smoke else "full",
            time_limit_seconds=options.minutes * 60,
            data=options.data,
            device=options.device,
            resume=options.resume,
            command=options.command,
            progress=sys.stderr,
        )


def _summary(run: "TrainingRun", recipe: recipes.Trainable, folder: Path) -> list[str]:
    """Return the summary of a run, and the command to type next."""
    from bireme_lab.training.runs import format_numbers

    numbers = format_numbers(run.curves.last_numbers)
    kilobytes = sum(file.stat().st_size for file in folder.iterdir()) / 1000
    return [
        f"trained {run.recipe} in {duration(run.seconds)}; measured last: {numbers}",
        f"  curves      {run.folder / 'curves.csv'}, {run.folder / 'curves.png'}",
        f"  checkpoint  {folder}, {kilobytes:.0f} kB",
        f"  next        {_next(run.recipe, recipe, shlex.quote(str(folder)))}",
    ]


def _next(name: str, recipe: recipes.Trainable, folder: str) -> str:
    """Return the command that evaluates the result."""
    if name in recipes.FORECASTERS:
        return f"bireme forecast compare --gru {folder} --series FILE"
    setting = next(iter(cast(recipes.Recipe, recipe).settings), "NAME")
    recipe_option = "" if name in recipes.RECIPES else f" --recipe {name}"
    return f"bireme evaluate {folder}{recipe_option} --setting {setting} --seeds 20"


def _seed(text: str) -> int:
    return whole(text, minimum=0)


def _minutes(text: str) -> float:
    return number(text, lambda value: 0 < value < inf, "is not a number of minutes above 0")
