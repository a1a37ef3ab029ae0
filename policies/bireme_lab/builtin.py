"""Policies of research that are learned: a class for each part of each shipped checkpoint.

A checkpoint lies in ``bireme_lab/checkpoints/NAME``; :mod:`bireme_lab.policy_names` maps policy
names to the classes here. ``bireme policies`` prints the first paragraph of a class.
"""

from bireme.rl.builtin import checkpoint
from bireme.rl.components import (
    ChosenOrderer,
    ChosenPlacer,
    LearnedOrderer,
    LearnedPlacer,
    LearnedSizer,
)
from bireme_lab.encoders.rlpto import MIDDLE_BETA, Beta


class A2c(LearnedOrderer):
    """A small network that weighs each gang against the queue, trained to cut slowdown.

    Running gangs are never stopped; the score is the network's. Trained in DeepRM's world.
    Source: Liang et al., PAKDD 2020 (A2cScheduler), with one scorer shared over the queue.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("a2c"))


class A2cCnn(LearnedOrderer):
    """The paper's convolutional network on an image of the cluster and the queue, in tens.

    Running gangs are never stopped; the score is the network's. It sees small gangs of a large
    cluster as alike. Trained in DeepRM's world.
    Source: Liang et al., PAKDD 2020 (A2cScheduler).
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("a2c-cnn"))


class DasOrder(LearnedOrderer):
    """A transformer over the queue that also sees the machines (ordering agent of DAS).

    Running gangs are never stopped; the score is the network's. Trained together with the placer.
    Source: the paper on DAS, with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("das"))


class DasPlacement(LearnedPlacer):
    """The machines that a network likes best for the task (the placement agent of DAS).

    Trained together with the orderer of the same name.
    Source: the paper on DAS, with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("das"))


class RlptoSizer(LearnedSizer):
    """Moves single workers, from gangs whose reports gain little to those that gain more.

    A gang whose last report gained less than beta gives one worker back; a network hands out what
    is free. Gangs that report nothing get what they ask for. Trained in the paper's world.
    Source: Lu et al., IEEE TPDS 2023 (RLPTO), with the fill-ins that its recipe states.
    """

    def __init__(self, beta: Beta = MIDDLE_BETA) -> None:
        super().__init__(checkpoint("rlpto").with_parameters("sizer", {"beta": beta}))


class TapfingerOrder(ChosenOrderer):
    """Gangs as node pools choose them, all others by arrival (the agents of TapFinger).

    Running gangs are never stopped. Made for pools of 4 to 32 GPUs.
    Source: Li et al., IEEE TPDS 2023 (TapFinger), with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("tapfinger"))


class TapfingerPlacement(ChosenPlacer):
    """Each gang packed into the node pool that chose it (agents of TapFinger).

    Trained together with the orderer and the sizer of the same name.
    Source: Li et al., IEEE TPDS 2023 (TapFinger), with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("tapfinger"))


class TapfingerSizer(LearnedSizer):
    """The sizes that node pools choose for gangs that start (the agents of TapFinger).

    Trained together with the orderer and the placer of the same name.
    Source: Li et al., IEEE TPDS 2023 (TapFinger), with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("tapfinger"))
