"""Records as JSON: exact to the last bit, and refused where nobody wrote them."""

import json
import math

import pytest

from discreet.accounting.randomized_response_event import ReportRecord
from discreet.accounting.serialization import records_from_dict
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import (
    MechanismRecord,
)
from discreet.core.layout import Layout

from ..core.test_guarantee import listed

HORIZON = 20


QUERY = CountQuery(Layout(6, 2, HORIZON))


def record(noise="laplace", scale=1800.0, levels=15, query=QUERY):
    return MechanismRecord.of(
        query, "binary tree over users", noise, dict.fromkeys(query.families, scale), levels
    )


def test_records_survive_json_to_the_last_bit():
    reports = ReportRecord(
        "reports", 2, {"moves": ("subset", 12, 3, 2**52 + 1, 0), "r": ("unary", 4, 1, 9, 7)}
    )
    records = (
        record(noise="gaussian", scale=math.pi / 7),
        listed("discrete_gaussian", 0.1 + 0.2, 1024),
        reports,
    )
    assert records_from_dict(json.loads(json.dumps([one.to_dict() for one in records]))) == records


@pytest.mark.parametrize(
    "change",
    [
        {"levels": None}, {"note": 1}, {"joint": 1}, {"joint": "1.0"}, {"scales": []}, {"kind": "other"},
        {"scales": {"visits": 1}}, {"exchanges": [[["gaussian", 1.0, 1, 2]]]}, {"exchanges": [["gaussian"]]},
        {"levels": True}, {"mechanism": 3}, {"levels": 2.0},
    ],
)  # fmt: skip
def test_records_that_nobody_wrote_are_refused(change):
    with pytest.raises(ValueError):
        records_from_dict([{**record().to_dict(), **change}])
    table = record().to_dict()
    del table[next(iter(change)) if next(iter(change)) in table else "joint"]
    with pytest.raises(ValueError):
        records_from_dict([table])


@pytest.mark.parametrize("noise", ["laplace", "discrete_gaussian"])
def test_ways_to_exchange_a_user_are_those_of_the_scales(noise):
    """A file cannot list moves under more noise, of fewer cells, or smaller and more of them."""
    table = listed(noise, 3.0, 16).to_dict()
    assert records_from_dict([table])[0].exchanges
    ((first, *rest),) = table["exchanges"]
    other = {"laplace": "discrete_laplace", "discrete_gaussian": "gaussian"}[noise]
    forged = [
        [[first[0], first[1] * 2, first[2], first[3]], *rest],
        [[first[0], first[1] * 2, first[2] * 2, first[3]], *rest],  # on a grid of its own
        [[first[0], first[1], first[2], first[3] // 2], *rest],
        [[first[0], first[1], first[2] / 2, first[3] * (2 if noise == "laplace" else 4)], *rest],
        [[other, *first[1:]], *rest],
        rest,
        [],
    ]
    for way in forged:
        with pytest.raises(ValueError, match="exchanges"):
            records_from_dict([{**table, "exchanges": [way]}])
    for change in ({"scales": dict.fromkeys(QUERY.families, 6.0)}, {"levels": 2}):
        with pytest.raises(ValueError, match="exchanges|joint"):
            records_from_dict([{**table, **change}])


def test_broken_alphabets_are_refused():
    table = ReportRecord("reports", 2, {"moves": ("subset", 12, 3, 2**52 + 1, 0)}).to_dict()
    for alphabet in (["subset", 12, 3, 1.0, 0], ["subset", 12, 3], ["subset", 12, 3, True, 0]):
        with pytest.raises(ValueError, match="alphabets"):
            records_from_dict([{**table, "alphabets": {"moves": alphabet}}])
    with pytest.raises(ValueError, match="must be tables"):
        records_from_dict([3])
    with pytest.raises(ValueError, match="record: kind"):
        MechanismRecord.from_dict(record().to_dict() | {"kind": "amplified"})
