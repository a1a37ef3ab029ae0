"""``python -m bireme.cli``: the command without its console script."""

from bireme.cli import main

raise SystemExit(main())
