"""The queue of questions: intervals are made of numbers."""

import dataclasses

import numpy as np
import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.mechanisms.features import Features
from discreet.mechanisms.interfaces import Plan, Response, Schedule
from discreet.mechanisms.linear.linear_queries import GramQuery


def base(session, step):
    """Standard deviation of an answer per unit of its range, by the records."""
    scales = session.records[1].scales
    return next(scale for name, scale in scales.items() if name.endswith(f"response[{step}]"))


PHI = Features(np.full((3, 2, 2), 0.5), 1.0)


QUERY = GramQuery(layout=Layout(3, 2, 2), features=PHI, model=False)


POLICY = np.zeros((2, 3), int)


class Liar(float):
    """A number that says what one likes to hear."""

    def __le__(self, other):
        return True

    def __lt__(self, other):
        return True

    def __sub__(self, other):
        return 1e-9


def test_the_interval_of_a_question_is_made_of_numbers():
    # under span = "declared" the noise followed whatever the interval's ends did in a subtraction
    query = dataclasses.replace(QUERY, span="declared")
    session = dr.Central(mu=1.0, release="batches").start(
        query, Schedule(3, times=np.array([0, 2])), Seeded(0, 0)
    )
    session.release()
    session.begin(Plan(POLICY, 2))
    session.absent(2)
    session.release()
    session.answer(Response(1, np.zeros(3), (0.0, 1.0)))
    with pytest.raises(ValueError, match="interval"):
        session.answer(Response(0, np.zeros(3), ("0", 2.0)))
    found = session.answer(Response(0, np.array([0.0, 1.0, 1.0]), (Liar(0.0), Liar(2.0))))
    assert found.law.std() == pytest.approx(2 * base(session, 0))
