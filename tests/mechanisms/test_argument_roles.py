"""Parts of a run in the wrong argument: the error says what was passed."""

import pytest

import discreet as dr
from discreet.mechanisms.argument_roles import check_role


def test_parts_in_their_roles_pass() -> None:
    check_role("learner", dr.DPUCBVI(), "learner")
    check_role("learner", dr.DPAPVI(), "offline learner")
    check_role("privatizer", dr.Central(epsilon=1.0), "privatizer")


@pytest.mark.parametrize(
    ("value", "role", "words"),
    [
        (dr.Central(epsilon=1.0), "learner", "are learner and privatizer swapped"),
        (dr.DPUCBVI(), "privatizer", "are learner and privatizer swapped"),
        (dr.DPAPVI(), "learner", "it learns from offline data"),
        (dr.DPUCBVI(), "offline learner", "it learns from users who arrive"),
        (dr.DPUCBVI, "learner", r"call it, DPUCBVI\(\.\.\.\)"),
        ("ucbvi", "learner", "must be a learner, such as"),
        (None, "offline learner", "must be an offline learner"),
    ],
)
def test_others_are_refused_with_what_they_are(value: object, role: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_role("part", value, role)
