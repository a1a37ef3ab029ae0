"""A recipe of seconds: Echo, learned by PPO; its checkpoint says nothing, its numbers are made up.

Policy ``echo`` has cost 10 + seed, ``twice`` twice that, ``lost`` never a value of ``delay``.
"""

from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import ClassVar

from safetensors.torch import save_file

from bireme.core.errors import SettingError
from bireme.rl.checkpoint import Checkpoint
from bireme_lab.training.distributed import rank
from bireme_lab.training.ppo import PPO, PPOConfig
from bireme_lab.training.recipes import Results
from bireme_lab.training.runs import TrainingRun
from testbed.networks.checkpoints import write
from testbed.toys.envs import Echo
from testbed.toys.policies import Echoing

UPDATES = 12
ENVS = 64


class EchoRecipe:
    summary = "Echo, learned by PPO"
    settings: ClassVar[Mapping[str, str]] = {"plain": "costs as they are", "dear": "ten times that"}
    primary = ("cost", True)

    def train(self, run: TrainingRun) -> Path:
        """Run ``UPDATES`` updates of PPO; every process leaves its weights as ``weights-RANK``."""
        policy, config = Echoing(run.seed), PPOConfig(learning_rate=0.05)
        run.learn("echo", PPO(policy, Echo(ENVS), config, run.env_seed), UPDATES * ENVS * 2)
        save_file(policy.state_dict(), run.folder / f"weights-{rank()}.safetensors")
        if run.is_first:
            write(run.checkpoint_folder, orderer=(1,), order_encoder="a2c-jobs/1", name="echo")
        return run.checkpoint_folder

    def evaluate(
        self, checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
    ) -> Results:
        """Return made numbers; fail for the seed that ``options`` call bad."""
        if options.get("bad") == str(seed):
            raise SettingError(f"the trace of seed {seed} is missing; download it")
        cost = (10.0 + seed) * (10 if setting == "dear" else 1)
        own = {"cost": cost, "delay": 1.0}
        return {
            "twice": {"cost": 2 * cost, "delay": 3.0},
            checkpoint.card.name: own,
            "lost": {"cost": nan},
        }
