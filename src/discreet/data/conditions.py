"""Conditions on values, written as text: ``pressure < 65 and (lactate >= 2 or missing(lactate))``.

Numbers, strings in quotes, brackets and the names of values are allowed. The operators are ``< <= > >= ==
!=``, ``and``, ``or``, ``not`` and ``missing(name)``. A comparison with a missing value is false. The text is
parsed and never executed. All other syntax is rejected.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.releases import Floats

Flags = NDArray[np.bool_]

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True)
class Condition:
    """Parsed condition.

    Parameters
    ----------
    text : the text of the condition
    names : names of the values that occur in comparisons
    asked_missing : names of the values that occur inside ``missing``
    tree : syntax tree with labels replaced by indices
    """

    text: str
    names: frozenset[str]
    asked_missing: frozenset[str]
    tree: ast.expr

    def of(self, values: Mapping[str, Floats]) -> Flags:
        """Return an (n,) mask that is True where the condition holds.

        ``values`` : mapping of each name to an (n,) array, with NaN for missing values. For categories,
        ``values`` contains indices.
        """
        found: Flags = _holds(self.tree, values)
        return found


def condition(name: str, text: Any, values: Mapping[str, Sequence[str] | None]) -> Condition:
    """Parse the text of a condition.

    ``values`` maps the name of each value to its category labels, or to None for numbers.

    Raises ``ValueError`` if the text is not a condition, or uses a value or a label that is not declared.
    """
    if not isinstance(text, str) or len(text) > 10_000:
        raise ValueError(f"{name} = {checks.said(text)}: must be a condition, such as 'pressure < 65'")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(
            f"{name} = {checks.said(text)}: must be a condition, such as 'pressure < 65'"
        ) from None
    read: set[str] = set()
    asked: set[str] = set()
    try:
        tree = _checked(f"{name} = {checks.said(text)}", tree, values, read, asked)
    except RecursionError:
        raise ValueError(f"{name}: must not be nested so deeply") from None
    return Condition(text, frozenset(read), frozenset(asked), tree)


def _checked(
    where: str, node: ast.expr, values: Mapping[str, Sequence[str] | None], read: set[str], asked: set[str]
) -> ast.expr:
    """Check a syntax tree, and return it with labels replaced by indices.

    Adds the names of compared values to ``read``, and the names inside ``missing`` to ``asked``. ``where`` is
    the beginning of error messages. Raises ``ValueError`` for syntax that is not allowed.
    """

    def known(name: str) -> str:
        if name not in values:
            raise ValueError(f"{where}: {name!r} must be one of the values {', '.join(values) or '(none)'}")
        return name

    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(node.op, [_checked(where, one, values, read, asked) for one in node.values])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ast.UnaryOp(node.op, _checked(where, node.operand, values, read, asked))
    if isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and node.func.id == "missing"
        if named and len(node.args) == 1 and isinstance(node.args[0], ast.Name) and not node.keywords:
            asked.add(known(node.args[0].id))
            return node
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        parts = [node.left, *node.comparators]
        names = [known(part.id) for part in parts if isinstance(part, ast.Name)]
        read.update(names)
        labels = {tuple(values[name] or ()) for name in names}
        if not names or len(labels) > 1:
            raise ValueError(f"{where}: must compare values of one kind with numbers or labels")
        sides = [_side(where, part, labels.copy().pop()) for part in parts]
        if any(labels) and not all(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            raise ValueError(
                f"{where}: categories must be compared with == or !=, because they have no order"
            )
        return ast.Compare(sides[0], node.ops, sides[1:])
    raise ValueError(
        f"{where}: must consist of comparisons of values, 'and', 'or', 'not', brackets and missing(name)"
    )


def _side(where: str, node: ast.expr, labels: tuple[str, ...]) -> ast.expr:
    """Check one side of a comparison, and return it. A label is replaced by its index.

    ``labels`` : labels of the compared values; empty if the values are numbers.
    """
    if isinstance(node, ast.Name):
        return node
    sign = 1.0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1.0, node.operand
    content = node.value if isinstance(node, ast.Constant) else None
    if labels and sign > 0 and isinstance(content, str):
        if content not in labels:
            raise ValueError(f"{where}: {content!r} must be one of the labels {', '.join(labels)}")
        return ast.Constant(float(labels.index(content)))
    if not labels and isinstance(content, int | float) and not isinstance(content, bool):
        return ast.Constant(sign * checks.real(f"{where}: a number", content))
    raise ValueError(
        f"{where}: must compare with {'one of the labels ' + ', '.join(labels) if labels else 'a number'}"
    )


def _holds(node: ast.expr, values: Mapping[str, Floats]) -> Any:
    if isinstance(node, ast.BoolOp):
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return join.reduce([_holds(one, values) for one in node.values])
    if isinstance(node, ast.UnaryOp):
        return ~_holds(node.operand, values)
    if isinstance(node, ast.Call):
        return np.isnan(values[node.args[0].id])  # type: ignore[attr-defined]  # checked
    assert isinstance(node, ast.Compare)
    sides = [
        values[part.id] if isinstance(part, ast.Name) else part.value  # type: ignore[attr-defined]
        for part in (node.left, *node.comparators)
    ]
    size = len(next(iter(values.values())))
    good = np.ones(size, bool)
    for side in sides:
        good &= ~np.isnan(side)
    for op, a, b in zip(node.ops, sides, sides[1:], strict=False):
        good &= _COMPARE[type(op)](a, b)
    return good
