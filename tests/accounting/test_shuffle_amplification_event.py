"""The record of amplified reports: written and read, checked by dp-accounting, never above its proof."""

import json

import pytest

from discreet.accounting.pld import verify
from discreet.accounting.randomized_response_event import composable_from_dict
from discreet.accounting.serialization import records_from_dict
from discreet.accounting.shuffle_amplification import amplified_delta, amplified_epsilon, local_epsilon
from discreet.accounting.shuffle_amplification_event import AmplifiedRecord
from discreet.core.guarantee import Guarantee, guarantee_of

DELTA = 1e-6


def record():
    batches = tuple((n, local_epsilon(1.0, DELTA, n)) for n in (1, 300, 20_000))
    return AmplifiedRecord("reports of 1 random step of 20", batches)


def test_guarantee_is_checked_by_dp_accounting():
    made = record()
    guarantee = guarantee_of("shuffle", [made], randomness="seeded", delta=DELTA, epsilon_nominal=1.0)
    assert 0.999 < guarantee.epsilon <= 1.0
    assert verify(guarantee, [made]) == pytest.approx(guarantee.epsilon, abs=2e-3)
    fewer = AmplifiedRecord(made.mechanism, ((10_000, made.batches[-1][1]),))
    with pytest.raises(ValueError, match="is not what the noise gives"):
        verify(guarantee, [fewer])
    with pytest.raises(ValueError, match="only one"):
        guarantee_of("shuffle", [made, made], randomness="seeded", delta=DELTA)
    assert f"{made.local:.3f}"[:4] in guarantee.statement
    assert Guarantee.from_dict(json.loads(guarantee.to_json())) == guarantee


@pytest.mark.parametrize("users", [1, 2, 50, 3_000])
@pytest.mark.parametrize("own", [0.4, 2.0, 6.0])
def test_two_ways_to_sum_agree(users, own):
    one = AmplifiedRecord("reports", ((users, own),))
    assert one.recomputed(DELTA) == pytest.approx(amplified_epsilon(own, users, DELTA), abs=2e-3)
    assert amplified_delta(own, users, one.epsilon(DELTA)) <= DELTA


def test_it_survives_json_and_wrong_tables_are_refused():
    made = record()
    table = made.to_dict()
    assert records_from_dict(json.loads(json.dumps([table]))) == (made,)
    for wrong in (
        {**table, "more": 1}, {**table, "mechanism": 3}, {**table, "batches": 3}, {**table, "batches": []},
        {**table, "batches": [[1.0, 2.0]]}, {**table, "batches": [[0, 2.0]]},
        {**table, "batches": [[1, -1.0]]},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            AmplifiedRecord.from_dict(wrong)
    with pytest.raises(ValueError, match="no ledger composes"):
        composable_from_dict([table])
