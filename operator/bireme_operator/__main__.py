"""``bireme-operator``: the operator process."""

import sys

from bireme.startup import importing

with importing():
    from bireme_operator.program import main

if __name__ == "__main__":
    sys.exit(main())
