"""``bireme policies``: every registered policy, with a line that says what it does."""

import pytest

from bireme import policy_names
from bireme.cli import main


def test_every_registered_policy_is_listed_with_its_kind_and_a_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["policies"]) == 0
    listed = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    known = [
        *(("orderer", name) for name in policy_names.class_paths("orderer")),
        *(("placer", name) for name in policy_names.class_paths("placer")),
        *(("sizer", name) for name in policy_names.class_paths("sizer")),
    ]
    assert [(kind, name) for kind, name, _ in listed] == known
    assert all(len(summary) > 10 for _, _, summary in listed)


def test_version_and_help_are_answered_with_success(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, says in ((["--version"], "bireme "), (["simulate", "--help"], "--trace SOURCE")):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0
        assert says in capsys.readouterr().out
