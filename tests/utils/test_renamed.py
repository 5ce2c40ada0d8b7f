"""Old names: the error names the new one, and names that never changed are not in the table."""

import pytest

import discreet as dr
from discreet.utils.renamed import renamed


def test_an_old_name_raises_an_error_with_the_new_one() -> None:
    assert (
        renamed("discreet.storage.ledger")
        == "discreet.storage.ledger was renamed in 0.3.0: discreet.ledger.ledger"
    )
    assert renamed("discreet.Clocks") == "discreet.Clocks was removed in 0.3.0"
    assert renamed("discreet.DPUCBVI") is None
    assert renamed("discreet.no_such_name") is None
    with pytest.raises(AttributeError, match=r"discreet\.ledger"):
        _ = dr.storage
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = dr.no_such_name
