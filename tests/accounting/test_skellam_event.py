"""Record of Skellam noise: numbers, files, and epsilon by the published theorem."""

import pytest

from discreet.accounting.serialization import records_from_dict
from discreet.accounting.skellam_event import SkellamRecord
from discreet.core.guarantee import Guarantee, guarantee_of

BATCHES = ((100, 0.22, 3e-5, 2e-6, 16384.0, 7e9), (300, 0.2, 3e-5, 2e-6, 16384.0, 8e9))


def test_epsilon_of_the_worst_batch_and_the_published_theorem():
    record = SkellamRecord("sums", BATCHES)
    assert record.epsilon(1e-6) == SkellamRecord("sums", BATCHES[:1]).epsilon(1e-6)
    assert record.worst(1e-6)[0] == 100
    pytest.importorskip("dp_accounting")
    assert record.recomputed(1e-6) == pytest.approx(record.epsilon(1e-6), rel=2e-3)


def test_guarantees_with_this_record_are_recomputed_from_files():
    record = SkellamRecord("sums", BATCHES)
    found = guarantee_of("shuffle", [record], randomness="secure", delta=1e-6)
    assert found.epsilon == record.epsilon(1e-6)
    assert (found.mu, found.rho) == (None, None)
    assert Guarantee.from_dict(found.to_dict()) == found
    assert records_from_dict([record.to_dict()]) == (record,)
    assert "best Renyi order" in found.composition[-1]
    assert "at least 100" in found.statement
    table = found.to_dict()
    table["epsilon"] *= 0.9
    with pytest.raises(ValueError, match="epsilon"):
        Guarantee.from_dict(table)


def test_records_that_are_refused():
    with pytest.raises(ValueError, match="batches"):
        SkellamRecord("sums", ())
    with pytest.raises(ValueError, match="users = 0"):
        SkellamRecord("sums", ((0, *BATCHES[0][1:]),))
    with pytest.raises(ValueError, match="mu"):
        SkellamRecord("sums", ((1, -1.0, *BATCHES[0][2:]),))
    plain = SkellamRecord("sums", BATCHES).to_dict()
    plain["batches"][0][0] = 1.5
    with pytest.raises(ValueError, match="record"):
        SkellamRecord.from_dict(plain)
