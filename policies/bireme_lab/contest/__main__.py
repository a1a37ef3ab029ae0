"""``python -m bireme_lab.contest``: the benchmark of all policies, a tool of the maintainers."""

from collections.abc import Sequence

from bireme.cli import run_module


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return its exit status."""
    purpose = "compare every policy with the best tuned rule, on data that chose none of them"
    return run_module("bireme_lab.contest", "bireme_lab.cli.benchmark", purpose, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
