"""``python -m bireme_lab.training NAME`` is ``bireme train NAME``: torchrun starts modules.

torchrun --nproc-per-node=2 -m bireme_lab.training a2c --out runs/a2c
"""

import sys

from bireme.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["train", *sys.argv[1:]]))
