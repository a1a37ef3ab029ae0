"""The ablations of the slides: DAS without the one, the other, or both of its two ideas.

``bireme train bireme.training.das.variants:Da`` trains one, like any recipe of one's own.
"""

from bireme.training.das.recipe import DasRecipe


class Da(DasRecipe):
    """Two agents, nothing more: the one does not see the cluster, the other not the past."""

    name = "da"
    summary = "DAS without communication and without the random-walk Gaussian process"
    communicates = False
    walks = False
    place_encoder = "das-machines-unaware/1"


class DaWithCommunication(DasRecipe):
    """DA+MC: the ordering agent sees the cluster."""

    name = "da-mc"
    summary = "DAS without the random-walk Gaussian process"
    walks = False
    place_encoder = "das-machines-unaware/1"


class DaWithWalks(DasRecipe):
    """DA+RWGP: the placement agent has the random-walk Gaussian process."""

    name = "da-rwgp"
    summary = "DAS without communication"
    communicates = False
