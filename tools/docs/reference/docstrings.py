"""The texts below the fields of a class, which Python itself does not keep."""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any


def docstrings(cls: type[Any]) -> dict[str, str]:
    """The text under each field of a dataclass or member of an enumeration, by its name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    return {
        name: ast.literal_eval(text.value).replace("``", "`")
        for field, text in pairwise(body)
        if isinstance(text, ast.Expr)
        for name in _named(field)
    }


def _named(field: ast.stmt) -> list[str]:
    """The name that a statement gives a value to; none where it is no such statement."""
    match field:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
    return []
