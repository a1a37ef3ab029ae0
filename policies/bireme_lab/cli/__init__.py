"""Commands of the lab, which the entry point ``lab`` adds to those of Bireme."""

from typing import Final

COMMANDS: Final = {
    "simulate": "compare policies on a workload, with the scheduling cycle of the operator",
    "replay": "show the decisions that other policies would have made on an operator's record",
    "tune": "fit rules, constants and the learned index to a record; accept only a policy that "
    "wins",
    "train": "train a learned policy: a folder with its checkpoint and its curves",
    "evaluate": "compare a learned policy with its rivals, on the same seeds",
    "benchmark": "compare every policy with the best tuned rule, on data that chose none of them",
    "forecast": "forecast a series, and compare the models on its past",
}
"""The purpose of each command: its line in the list, and its description."""
