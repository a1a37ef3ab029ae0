"""Blocks of a page, as its reader takes them, and the statements of a shell block."""

from pathlib import Path

import pytest

from testbed.pages.blocks import Commands, File, Output, steps_of
from testbed.pages.shell import ShellError, statements_of

PAGE = """\
# Page

Save this as `job.yaml`:

```yaml
kind: Job
```

It is sent (a part):

```sh
send job.yaml
```

```
sent
```

The program's output on another day:

```
nothing
```

```sh
look
```

```yaml
kind: Other
```
"""


def test_a_page_has_files_commands_and_their_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert steps_of(page) == [
        File("job.yaml", "kind: Job\n", 5),
        Commands("send job.yaml\n", 11, Output("...\nsent\n...\n", 15)),
        Commands("look\n", 25, None),
    ]


def test_a_script_is_cut_into_whole_statements() -> None:
    script = """\
first  # with a comment
# a comment alone

sed 's/a/b/
     s/c/d/' file \\
  | second
for i in 1 2; do
  third $i
done
fourth - <<'END'
text for it
END
fifth; sixth
"""
    assert list(statements_of(script)) == [
        "first  # with a comment",
        "sed 's/a/b/\n     s/c/d/' file \\\n  | second",
        "for i in 1 2; do\n  third $i\ndone",
        "fourth - <<'END'\ntext for it\nEND",
        "fifth; sixth",
    ]


def test_a_script_that_does_not_end_is_an_error() -> None:
    with pytest.raises(ShellError, match="bash does not take this"):
        list(statements_of("for i in 1; do\n  first\n"))
