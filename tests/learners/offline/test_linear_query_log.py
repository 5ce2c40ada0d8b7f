"""Answers that were kept: features have a fingerprint, and an answer is of one question with its arrays."""

from typing import Any

import numpy as np
import pytest

from discreet.core.guarantee import no_guarantee
from discreet.core.layout import Layout
from discreet.learners.offline.linear_query_log import LinearRelease, LoggedAnswers, LoggedQuery, fingerprint
from discreet.mechanisms.features import Features
from discreet.mechanisms.linear.adaptive_queries import Answer, Question

LAYOUT = Layout(3, 2, 2)
VALUES = np.array([0.0, 0.5, 1.0])
GRAM, RESPONSE = (Question(kind=kind, step=1, mu=0.1) for kind in ("gram", "response"))


def release() -> LinearRelease:
    gram, response = Answer(gram=np.eye(2)), Answer(vector=np.array([1.0, 2.0]))
    features: dict[str, Any] = fingerprint(Features(np.full((3, 2, 2), 0.5)))
    asked = (LoggedQuery(GRAM, gram), LoggedQuery(RESPONSE, response, VALUES))
    return LinearRelease(LAYOUT, features, 7, no_guarantee("seeded"), asked)


def test_a_fingerprint_is_of_every_bit_of_the_table() -> None:
    table = np.full((3, 2, 2), 0.5)
    first = fingerprint(Features(table))
    table[1, 1, 1] = np.nextafter(0.5, 0.0)
    assert fingerprint(Features(table))["sha256"] != first["sha256"]
    assert first["dimension"] == 2


def test_a_question_gets_its_own_answer_and_no_other() -> None:
    kept = release()
    again = LoggedAnswers(kept, (GRAM, RESPONSE))
    assert again.gram(1) is kept.asked[0].answer
    assert again.response(1, VALUES) is kept.asked[1].answer
    assert again.users == 7
    with pytest.raises(ValueError, match="asked with other values"):
        LoggedAnswers(kept, (RESPONSE,)).response(1, VALUES + 0.1)
    with pytest.raises(ValueError, match="asked with other weights"):
        LoggedAnswers(kept, (RESPONSE,)).response(1, VALUES, np.ones((3, 2)))
    with pytest.raises(ValueError, match="holds no answer to 'gram' of step 0"):
        LoggedAnswers(kept, (Question(kind="gram", step=0, mu=0.1),)).gram(0)


def test_arrays_are_named_by_their_question_and_broken_tables_are_refused() -> None:
    kept = release()
    assert [(name, step) for name, step, _ in kept.tables()] == [
        ("0000.gram", 1), ("0001.vector", 1), ("0001.values", 1),
    ]  # fmt: skip
    tables = {(name, step): array for name, step, array in kept.tables()}
    again = LinearRelease.of(LAYOUT, 7, kept.guarantee, kept.query(), tables)
    assert again.query() == kept.query()
    with pytest.raises(ValueError, match="users = 0"):
        LinearRelease.of(LAYOUT, 0, kept.guarantee, kept.query(), tables)
    with pytest.raises(ValueError, match="not that of a linear release"):
        LinearRelease.of(LAYOUT, 7, kept.guarantee, {"questions": []}, tables)
