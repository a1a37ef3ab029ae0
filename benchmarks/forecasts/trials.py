"""Trials by page: series, and how far ahead they are forecast."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of ``bireme forecast compare``; ``arguments`` as a shell reads them."""

    title: str
    arguments: str

    @property
    def command(self) -> str:
        return f"bireme forecast compare {self.arguments} --plot forecast.png"


@dataclass(frozen=True, slots=True)
class Page:
    """Trials by name, under a title; the page's prose is the file of its name in ``prose``."""

    title: str
    trials: Mapping[str, Trial]


_NODES: Final = "--series $DATA/helios/philly_node_sequence_1min.csv.gz --column active --step 1h"
_JOBS: Final = (
    "--series $DATA/philly/philly_2017-09-04_2017-11-14.csv.gz --reduce count --since 2017-09-24"
)
_SECOND: Final = "--series $DATA/tsdl/B1H_timestamped.csv --column bits --test 14d --gru shipped"
_BEFORE: Final = f"{_SECOND} --until 2005-01-13T10:30"

PAGES: Final[Mapping[str, Page]] = {
    "tsdl": Page(
        "Traffic of an Internet provider, the series of the LSP paper",
        {
            "tsdl-5min": Trial(
                "Five minutes ahead",
                "--series $DATA/tsdl/A5M_timestamped.csv.gz --column bits --test 1w",
            ),
            "tsdl-hour": Trial(
                "An hour ahead", "--series $DATA/tsdl/A1H_timestamped.csv --column bits --test 14d"
            ),
            "tsdl-day": Trial(
                "A day ahead", "--series $DATA/tsdl/A1D.txt --step 1d --test 14d --quantile 0.8"
            ),
            "tsdl-2days": Trial(
                "Two days of hours ahead",
                "--series $DATA/tsdl/A1H_timestamped.csv --column bits --horizon 2d --test 14d",
            ),
        },
    ),
    "second-provider": Page(
        "Traffic of a second provider, with the network that comes with Bireme",
        {
            "second-hour-before": Trial("An hour ahead, without the last two weeks", _BEFORE),
            "second-hour": Trial("An hour ahead, the last two weeks", _SECOND),
            "second-2days-before": Trial(
                "Two days of hours ahead, without the last two weeks", f"{_BEFORE} --horizon 2d"
            ),
            "second-2days": Trial(
                "Two days of hours ahead, the last two weeks", f"{_SECOND} --horizon 2d"
            ),
        },
    ),
    "philly-nodes": Page(
        "Nodes in use in Philly",
        {
            "philly-nodes-hour": Trial("An hour ahead", f"{_NODES} --test 14d"),
            "philly-nodes-2days": Trial(
                "Two days of hours ahead", f"{_NODES} --horizon 2d --test 14d"
            ),
            "philly-nodes-shipped": Trial(
                "Two days of hours ahead, with the network that comes with Bireme",
                f"{_NODES} --horizon 2d --test 14d --gru shipped",
            ),
        },
    ),
    "philly-jobs": Page(
        "Jobs submitted to Philly",
        {
            "philly-jobs-hour": Trial("An hour ahead", f"{_JOBS} --step 1h --test 14d"),
            "philly-jobs-day": Trial("A day ahead", f"{_JOBS} --step 1d --test 21d"),
        },
    ),
}
