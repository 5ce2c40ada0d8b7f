"""Optional parts of the kernel are set once, and nobody can add or replace one afterwards."""

import ast
import importlib
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import discreet
from discreet.core import registry
from discreet.core.events import MechanismRecord
from discreet.core.guarantee import Guarantee, guarantee_of

RECORD = MechanismRecord("sums", "laplace", {"visits": 2.0}, {"visits": 1.0}, 0.5, 1)
KINDS = ("noise", "reports", "flips", "declared", "amplified", "skellam")


class Forged:
    """Parts that state what they like."""

    records = (("noise", "builtins", "dict"),)


def test_parts_are_set_once() -> None:
    own = registry.parts()
    for given in (Forged(), own, None):
        with pytest.raises(ValueError, match="given = .*: must not replace the parts"):
            registry.set_parts(given)  # type: ignore[arg-type]
    assert registry.parts() is own


def test_no_name_of_the_registry_can_be_assigned_or_deleted() -> None:
    own = registry.parts()
    for name in ("_parts", "parts", "is_record", "record_class", "set_parts", "another"):
        with pytest.raises(AttributeError, match=f"registry.{name} is fixed"):
            setattr(registry, name, Forged)
    for name in ("_parts", "is_record"):
        with pytest.raises(AttributeError, match="is fixed"):
            delattr(registry, name)
    assert registry.parts() is own


def test_a_reload_keeps_the_parts() -> None:
    """In a process of its own: a reload that worked would make the functions of the module again."""
    code = (
        "import importlib, discreet\n"
        "from discreet.core import registry\n"
        "own = registry.parts()\n"
        "importlib.reload(discreet)\n"
        "try:\n"
        "    importlib.reload(registry)\n"
        "except AttributeError:\n"
        "    print('refused')\n"
        "assert registry.parts() is own\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"


def test_an_unknown_kind_of_record_is_refused_with_the_known_ones() -> None:
    for kind in ("os", None, 1, ["noise"], "MechanismRecord"):
        with pytest.raises(ValueError, match="record: kind = ") as caught:
            registry.record_class(kind)
        assert all(one in str(caught.value) for one in KINDS)


def test_an_unknown_kind_of_record_in_a_file_is_refused_with_the_known_ones() -> None:
    table = guarantee_of("central", [RECORD], randomness="seeded").to_dict()
    table["mechanisms"][0]["kind"] = "subprocess:Popen"
    with pytest.raises(ValueError, match="record: kind = 'subprocess:Popen'") as caught:
        Guarantee.from_dict(table)
    assert all(one in str(caught.value) for one in KINDS)


def test_records_are_told_by_their_exact_class() -> None:
    class Cheaper(MechanismRecord):
        @property
        def loss(self) -> float:
            return 0.0

    assert registry.is_record(RECORD)
    assert not registry.is_record(MechanismRecord)
    assert not registry.is_record(None)
    cheaper = Cheaper(
        *(getattr(RECORD, name) for name in ("mechanism", "noise", "scales")), {"visits": 1.0}, 0.5
    )
    same_name = type("MechanismRecord", (Cheaper,), {"__module__": "discreet.core.events"})
    named = replace(cheaper)
    assert not registry.is_record(cheaper)
    object.__setattr__(named, "__class__", same_name)
    assert type(named).__qualname__ == "MechanismRecord"
    assert not registry.is_record(named)
    for forged in (cheaper, named):
        with pytest.raises(ValueError, match="must be records of a mechanism of this library"):
            guarantee_of("central", [forged], randomness="seeded")


def test_a_forged_class_imports_nothing() -> None:
    """Its module and name are those of a record whose module is not loaded."""
    code = (
        "import sys\n"
        "from discreet.core import registry\n"
        "for kind in ('flips', 'amplified', 'declared'):\n"
        "    module, name, _ = registry.parts().records[kind]\n"
        "    before = set(sys.modules)\n"
        "    assert not registry.is_record(type(name, (), {'__module__': module})())\n"
        "    assert set(sys.modules) == before and module not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Equal:
    """A value that is equal to all values."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


class Odd(type):
    """A class whose names are equal to all names."""

    def __getattribute__(cls, name: str) -> Any:
        return Equal() if name in ("__module__", "__qualname__") else super().__getattribute__(name)


def test_a_class_with_odd_names_is_no_record() -> None:
    assert not registry.is_record(Odd("Odd", (), {})())


@dataclass(frozen=True)
class Claims:
    """A record of a plug-in that states no loss, under the names of the library's own."""

    mechanism: str = "sums"
    noise: str = "laplace"
    norm: str = "l1"
    levels: int = 1
    loss: float = 0.0
    numerical: bool = False


Claims.__module__, Claims.__qualname__ = MechanismRecord.__module__, MechanismRecord.__qualname__


def test_a_plug_in_cannot_state_its_own_record() -> None:
    with pytest.raises(ValueError, match="must be records of a mechanism of this library"):
        guarantee_of("central", [Claims()], randomness="seeded")  # type: ignore[list-item]


def signatures(path: Path) -> dict[str, list[str]]:
    tree = ast.parse(path.read_text())
    return {
        node.name: [one.arg for one in node.args.args]
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def test_the_stub_has_the_functions_of_the_module() -> None:
    path = Path(str(registry.__file__))
    assert signatures(path) == signatures(path.with_suffix(".pyi"))
    assert sorted(signatures(path)) == sorted(registry.__all__)


def test_all_parts_of_the_protocol_are_used_by_the_kernel() -> None:
    """A part that nothing calls is not needed, and a call of another name would fail only when it runs."""
    core = Path(str(discreet.__file__)).parent / "core"
    tree = ast.parse((core / "part_protocols.py").read_text())
    (parts,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Parts")
    declared = {node.name for node in parts.body if isinstance(node, ast.FunctionDef)}
    used: set[str] = set()
    for path in core.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value=ast.Call(func=ast.Name(id="parts"), args=[]), attr=name):
                    used.add(name)
    assert used == declared


def test_importing_any_module_sets_the_parts() -> None:
    for module in ("discreet.core.registry", "discreet.core.checks", "discreet.utils.system"):
        code = f"import {module}\nfrom discreet.core import registry\nprint(type(registry.parts()).__name__)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "WiredParts\n"


def loaded(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_names_its_class(kind: str) -> None:
    """The names are only compared, so they must be those of the class that the function imports."""
    module, name, load = registry.parts().records[kind]
    found = load()
    assert found is getattr(loaded(module), name)
    assert registry.record_class(kind) is found
    assert (found.__module__, found.__qualname__) == (module, name)  # type: ignore[attr-defined]


def test_there_is_no_other_kind() -> None:
    assert tuple(registry.parts().records) == KINDS
