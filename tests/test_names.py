"""Public names are those of stubs, and an earlier name says where it went."""

import pickle

import pytest

import discreet
from discreet import names


def test_a_package_gives_the_names_of_its_stub() -> None:
    load, listed, found = names.public_names("discreet.accounting")
    assert found == discreet.accounting.__all__
    assert set(found) <= set(listed())
    assert load(found[0]) is getattr(discreet.accounting, found[0])


def test_an_unknown_name_is_refused() -> None:
    load, _, _ = names.public_names("discreet.accounting")
    with pytest.raises(
        names.PublicNameError, match="module 'discreet.accounting' has no attribute 'nothing'"
    ):
        load("nothing")


def test_the_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(names.PublicNameError("discreet", "nothing")))
    assert str(error) == "module 'discreet' has no attribute 'nothing'"


def test_an_earlier_module_says_where_it_went() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"discreet.core.parts was renamed in 0.3.0"):
        __import__("discreet.core.parts")


def test_the_version_is_that_of_the_package() -> None:
    assert discreet.__version__ == names.__version__
