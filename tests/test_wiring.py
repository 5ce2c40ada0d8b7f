"""The parts that the kernel uses are the library's own modules, and they stay as they are."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from discreet import wiring
from discreet.accounting.noise_distributions.count_noise import CountLaws
from discreet.core import registry
from discreet.mechanisms.saved_state import save
from discreet.mechanisms.saved_state.state_file import WRITTEN_NAMES

PARTS = [name for name, one in vars(wiring.WiredParts).items() if isinstance(one, property)]


def test_the_registry_holds_the_wired_parts() -> None:
    assert type(registry.parts()) is wiring.WiredParts


@pytest.mark.parametrize("name", [name for name in PARTS if name != "records"])
def test_a_part_is_a_module_of_this_library_with_the_functions_of_its_protocol(name: str) -> None:
    found = getattr(registry.parts(), name)
    assert inspect.ismodule(found)
    assert found.__name__.startswith("discreet.")
    path = Path(str(registry.__file__)).with_name("part_protocols.py")
    protocols = {
        node.name: node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
    }
    (declared,) = (one for one in protocols["Parts"].body if getattr(one, "name", "") == name)
    assert isinstance(declared, ast.FunctionDef)
    assert isinstance(declared.returns, ast.Name)
    for one in protocols[declared.returns.id].body:
        if isinstance(one, ast.FunctionDef):
            own = list(inspect.signature(getattr(found, one.name)).parameters)
            wanted = [arg.arg for arg in one.args.posonlyargs[1:]]
            assert len(own) >= len(wanted), one.name


def test_noise_distributions_of_counts_are_those_of_the_mechanism() -> None:
    assert inspect.signature(wiring.WiredParts.count_laws).parameters.keys() == {"self", "mechanism"}
    assert "CountLaws" in wiring.WiredParts.count_laws.__code__.co_names
    assert CountLaws.__module__ == "discreet.accounting.noise_distributions.count_noise"


def test_neither_the_parts_nor_their_class_can_be_changed() -> None:
    parts = registry.parts()
    for name in (*PARTS, "count_laws", "another"):
        with pytest.raises(AttributeError):
            setattr(parts, name, None)
        with pytest.raises(AttributeError, match="is fixed"):
            setattr(type(parts), name, None)
        with pytest.raises(AttributeError):
            delattr(type(parts), name)
    assert parts.sentences is importlib.import_module("discreet.accounting.text.guarantee_sentences")


def test_no_kind_of_record_can_be_added_or_replaced() -> None:
    class Reflected:
        """Receives the table that a comparison or a union hands to its other side."""

        def __eq__(self, other: Any) -> bool:
            other.update(evil=("builtins", "dict", dict))
            return True

        __ror__ = __eq__
        __hash__ = None  # type: ignore[assignment]

    before = dict(registry.parts().records)
    records: Any = registry.parts().records
    records["noise"] = ("builtins", "dict", dict)
    _ = registry.parts().records == Reflected()
    _ = registry.parts().records | Reflected()  # type: ignore[operator]
    assert registry.parts().records == before
    assert not registry.is_record({})


def test_a_reload_of_the_wiring_is_refused() -> None:
    """In a process of its own: a reload makes the classes of the module again."""
    code = (
        "import importlib\n"
        "from discreet import wiring\n"
        "from discreet.core import registry\n"
        "own = registry.parts()\n"
        "for change in (lambda: importlib.reload(wiring), lambda: registry.set_parts(wiring.WiredParts())):\n"
        "    try:\n"
        "        change()\n"
        "    except ValueError as error:\n"
        "        assert 'must not replace the parts' in str(error)\n"
        "    else:\n"
        "        raise AssertionError(change)\n"
        "assert registry.parts() is own\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_classes_of_files_have_the_names_that_files_use() -> None:
    for name, found in save.CLASSES.items():
        assert WRITTEN_NAMES.get(found.__name__, found.__name__) == name
        assert found.__module__.startswith("discreet.")
    for group, names in save._GROUPS.items():
        assert sorted(WRITTEN_NAMES.get(one.__name__, one.__name__) for one in group()) == sorted(names)
    with pytest.raises(KeyError):
        save.CLASSES["Popen"]
    assert save.CLASSES.get("Popen") is None


def test_no_class_of_files_can_be_added_or_replaced() -> None:
    for change in (
        "save.CLASSES['Popen'] = dict",
        "save._GROUP_OF['Popen'] = dict",
        "save.CLASSES.own = dict",
    ):
        with pytest.raises((TypeError, AttributeError)):
            exec(change, {"save": save})
