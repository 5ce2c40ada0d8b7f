"""Conditions of declarations, as Python reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from discreet.data.conditions import condition

VALUES = {"x": None, "y": None, "k": ("low", "high")}


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("x < 1", lambda x, y, k: x < 1),
        ("0 <= x < 1 and y > -2.5", lambda x, y, k: 0 <= x < 1 and y > -2.5),
        ("x < y or not x >= 0", lambda x, y, k: x < y or not x >= 0),
        ("k == 'high' and x != 1", lambda x, y, k: k == 1 and x == x and x != 1),
        (
            "missing(x) or (missing(y) and k != 'low')",
            lambda x, y, k: x != x or (y != y and k == k and k != 0),
        ),
        ("not (x < 1)", lambda x, y, k: not x < 1),
    ],
)
def test_conditions_as_python_reads_them(text: str, python: Any) -> None:
    draw = np.random.default_rng(0)
    values = {name: draw.choice([-3.0, -0.5, 0.0, 0.5, 1.0, 2.0, np.nan], 400) for name in ("x", "y")}
    values["k"] = draw.choice([0.0, 1.0, np.nan], 400)
    found = condition("when", text, VALUES).of(values)
    assert found.tolist() == [
        bool(python(*row)) for row in zip(values["x"], values["y"], values["k"], strict=True)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "x <", "1 < 2", "x < 'low'", "k < 'high'", "k == 1", "k == 'none'", "k == x", "x + 1 < 2",
        "f(x)",
        "missing(1)", "missing(x, y)", "x in (1, 2)", "x is 1", "lambda: x", "x < 1 if y else 2", "x := 3",
        "__import__('os').system('true')", "x.real < 1", "x < 1e999", "[x < 1]", "x < True", 3, None,
        "(" * 500 + "x < 1" + ")" * 500, "not " * 20_000 + "x < 1",
    ],
)  # fmt: skip
def test_what_is_no_condition(text: Any) -> None:
    with pytest.raises(ValueError, match="when"):
        condition("when", text, VALUES)
