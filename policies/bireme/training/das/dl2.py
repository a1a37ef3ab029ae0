"""A rival that learns as DL2 does: a small network per job, taught by a rule, then by reward.

DL2 (Peng et al., 2019) learns from the decisions of the present scheduler first and goes on by
policy gradient, with the mean reward as its baseline. Here it orders gangs: every job that fits has
a score of its own, the softmax of which chooses; where it goes is decided by load balance. What it
keeps of DL2 is the method, not the sizing of jobs, which are rigid in this world.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from bireme.rl.encoders.das_inputs import JOB_FEATURES
from bireme.training.a2c import A2C, A2CConfig
from bireme.training.cloning import Cloning, CloningConfig
from bireme.training.das.recipe import DasRecipe
from bireme.training.das.turns import ORDERING, DasTurns
from bireme.training.das.world import DasWorld
from bireme.training.distributions import Distribution, MaskedCategorical
from bireme.training.export import Trained
from bireme.training.policies import ActorCritic, Tensors
from bireme.training.runs import TrainingRun
from bireme.training.worlds import Actions, Observation, Step
