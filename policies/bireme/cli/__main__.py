"""``python -m bireme.cli``: the command without its console script."""

from bireme.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
