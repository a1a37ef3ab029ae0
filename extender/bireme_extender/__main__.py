"""``bireme-extender``: the extender process."""

import sys

from bireme.startup import importing

with importing():
    from bireme_extender.program import main

if __name__ == "__main__":
    sys.exit(main())
