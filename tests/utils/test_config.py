"""Options by name: what is not one is refused in words that say what is meant."""

import copy
import dataclasses
import inspect
import pickle

import pytest

import discreet as dr


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dr.Central(1.0), r"^Central takes keyword arguments only: Central\(epsilon=1.0\)$"),
        (lambda: dr.Local(2), r"^Local takes keyword arguments only: Local\(epsilon=2\)$"),
        (lambda: dr.Central(1.0, 1e-6), r"^Central takes keyword arguments only: .*; given 1.0, 1e-06$"),
        (lambda: dr.DPUCBVI(0.1), r"^DPUCBVI takes keyword arguments only: .*bonus_scale.*; given 0.1$"),
        (lambda: dr.Central(eps=1), r"^eps: unknown option of Central; did you mean epsilon\?$"),
        (lambda: dr.Local(deltas=1), r"^deltas: unknown option of Local; did you mean delta\?$"),
        (lambda: dr.Shuffle(zzz=1), r"^zzz: unknown option of Shuffle; must be one of preset, epsilon, "),
        (lambda: dr.learners.UCBVI(bonus=1, bonu=1),
         r"^bonu: unknown option of UCBVI; did you mean bonus\?$"),
        (lambda: dr.DPPEVI(rhoo=1.0), r"^rhoo: unknown option of DPPEVI; did you mean rho\?$"),
    ],
)  # fmt: skip
def test_options_are_given_by_name(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_a_specification_keeps_its_signature_and_can_be_copied():
    parameters = inspect.signature(dr.Central).parameters
    assert list(parameters)[:3] == ["preset", "epsilon", "delta"]
    assert all(one.kind is one.KEYWORD_ONLY for one in parameters.values())
    central = dr.Central(epsilon=1.0, delta=1e-6)
    for same in (copy.deepcopy(central), pickle.loads(pickle.dumps(central)), dataclasses.replace(central)):
        assert same == central
    assert dataclasses.replace(central, epsilon=2.0).epsilon == 2.0
