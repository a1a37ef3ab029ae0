"""Names of the policies of research, which the entry point ``lab`` adds to those of Bireme."""

from pathlib import Path
from typing import Final

from bireme.policy_names import PolicyNames

NAMES: Final = PolicyNames(
    classes={
        "orderer": {
            "a2c": "bireme_lab.builtin:A2c",
            "a2c-cnn": "bireme_lab.builtin:A2cCnn",
            "das": "bireme_lab.builtin:DasOrder",
            "malo": "bireme_lab.heuristics.search_orderers:Malo",
            "mosa": "bireme_lab.heuristics.search_orderers:Mosa",
            "rifling": "bireme_lab.heuristics.search_orderers:Rifling",
            "rlpto": "bireme_lab.heuristics.rlpto_queues:RlptoQueues",
            "tapfinger": "bireme_lab.builtin:TapfingerOrder",
            "tradl": "bireme_lab.heuristics.tradl:TradlOrder",
        },
        "placer": {
            "das": "bireme_lab.builtin:DasPlacement",
            "gandiva": "bireme_lab.heuristics.gandiva:GandivaPlacement",
            "tapfinger": "bireme_lab.builtin:TapfingerPlacement",
        },
        "sizer": {
            "dolphin": "bireme_lab.heuristics.measured_sizers:Dolphin",
            "optimus": "bireme_lab.heuristics.measured_sizers:Optimus",
            "rlpto": "bireme_lab.builtin:RlptoSizer",
            "slaq": "bireme_lab.heuristics.measured_sizers:Slaq",
            "tapfinger": "bireme_lab.builtin:TapfingerSizer",
            "tradl": "bireme_lab.heuristics.tradl:TradlSizer",
        },
    },
    encoders={
        "orderer": {
            "a2c-image/1": "bireme_lab.encoders.a2c:A2cImages",
            "a2c-jobs/1": "bireme_lab.encoders.a2c:A2cJobs",
            "das-jobs/1": "bireme_lab.encoders.das:DasJobs",
        },
        "placer": {
            "das-machines/1": "bireme_lab.encoders.das:DasMachines",
            "das-machines-unaware/1": "bireme_lab.encoders.das:UnawareDasMachines",
        },
        "sizer": {
            "rlpto-tasks/1": "bireme_lab.encoders.rlpto:RlptoTasks",
            "tapfinger-pools/1": "bireme_lab.encoders.tapfinger:TapfingerPools",
            "tapfinger-types/1": "bireme_lab.encoders.tapfinger_types:TapfingerTypes",
        },
    },
    checkpoints=Path(__file__).parent / "checkpoints",
    learned="bireme_lab.builtin",
)
