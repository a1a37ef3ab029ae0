"""Small networks are slower with more threads: tests of training have one, as training has."""

import torch

torch.set_num_threads(1)
