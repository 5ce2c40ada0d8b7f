"""Records of coin flips: another account of epsilon, exact JSON, and what is refused."""

import pytest

from discreet.accounting.binomial_noise import COIN, Flips
from discreet.accounting.binomial_noise_event import BinomialRecord

NOISE = (("visits", Flips(400, 1, COIN // 2)),)
RECORD = BinomialRecord("bits", (NOISE, (("visits", Flips(100, 1, COIN // 2)),)), ((("visits", 1, 2),),))


def test_epsilon_is_that_of_the_worst_batch_and_of_another_account() -> None:
    assert RECORD.worst(1e-4) == (("visits", Flips(100, 1, COIN // 2)),)
    assert RECORD.recomputed(1e-4) == pytest.approx(RECORD.epsilon(1e-4), rel=0.02)
    alone = BinomialRecord("bits", (NOISE,), RECORD.ways)
    assert 0 < alone.epsilon(1e-4) < RECORD.epsilon(1e-4)
    assert "moves counters by 2 in all" in RECORD.line(1e-4)


def test_a_record_comes_back_from_json_and_strange_ones_are_refused() -> None:
    table = RECORD.to_dict()
    assert BinomialRecord.from_dict(table) == RECORD
    for key, value in {"batches": [[["visits", 400, 1, "1", False]]], "ways": [[["visits", 1.0, 2]]]}.items():
        with pytest.raises(ValueError, match="record: "):
            BinomialRecord.from_dict({**table, key: value})
    with pytest.raises(ValueError, match="at least one"):
        BinomialRecord("bits", (), RECORD.ways)
    with pytest.raises(ValueError, match="no noise in some batch"):
        BinomialRecord("bits", (NOISE,), ((("rewards", 1, 1),),))
