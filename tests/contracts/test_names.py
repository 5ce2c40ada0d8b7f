"""Names of classes: one name means one thing in the whole library."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "discreet"
COMPILED = {
    "Forecast": ["experiments.estimate", "learners.online.noise_aware_kernels"],
    "Record": ["core.protocols", "experiments.fused_driver_kernels"],
    "Scratch": ["experiments.fused_driver_kernels", "learners.online.joint_posterior_kernels"],
}
"""Pairs with a class of compiled code. A new name there compiles everything again."""


def shared(sources: dict[str, str]) -> dict[str, list[str]]:
    """Modules by the name of each class that several of them define."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, text in sorted(sources.items()):
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_no_two_modules_define_a_class_of_one_name() -> None:
    sources = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts): path.read_text("utf-8")
        for path in SOURCE.rglob("*.py")
    }
    assert len(sources) > 300
    assert shared(sources) == COMPILED


def test_a_shared_name_is_found() -> None:
    assert shared({"a": "class A: ...", "b": "class A: ...\nclass B: ...", "c": "A = 1"}) == {"A": ["a", "b"]}
