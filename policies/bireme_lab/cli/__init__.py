"""Commands of the lab, which the entry point ``lab`` adds to those of Bireme."""

from typing import Final

from bireme.cli.commands import Command

COMMANDS: Final = {
    "try": Command(
        "run a cluster with Bireme on it in this process, until Ctrl-C", "bireme_lab.cli.trial"
    ),
    "simulate": Command(
        "compare policies on a workload, with the scheduling cycle of the operator",
        "bireme_lab.cli.simulate",
    ),
    "replay": Command(
        "show the decisions that other policies would have made on an operator's record",
        "bireme_lab.cli.replay",
    ),
    "tune": Command(
        "fit rules, constants and the learned index to a record; accept only a policy that wins",
        "bireme_lab.cli.tune",
    ),
    "train": Command(
        "train a learned policy: a folder with its checkpoint and its curves",
        "bireme_lab.cli.train",
    ),
    "evaluate": Command(
        "compare a learned policy with its rivals, on the same seeds", "bireme_lab.cli.evaluate"
    ),
    "forecast": Command(
        "compare the models on a series",
        verbs={
            "compare": Command(
                "compare the models on the past of a series, and forecast it by the best",
                "bireme_lab.cli.forecast",
            )
        },
    ),
}
"""Each command by its name, in the order of the help; a verb of a command of Bireme at the end."""
