"""Sums of a batch are taken once, and from the shuffler alone."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import a_key

from discreet.device.published_device import device_from_bytes
from discreet.service.batch_sums import ShuffledBatches, sum_of

from .test_shuffler import Parties

LENIENT = {"name": "shuffle", "epsilon": 1.0, "delta": 1e-6, "dishonest": 0.5}


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    """Of a study where half of a batch's flips are enough."""
    return Parties(tmp_path, privatizer=LENIENT)


def test_a_sum_is_taken_once_and_from_the_shuffler_alone(parties: Parties, tmp_path: Path) -> None:
    parties.adopted()
    parties.people()
    session = device_from_bytes(bytes(parties.shuffler.store.about()["form"])).session

    def summed(ones: int = 0, key: Any = parties.key, users: int = 1, **other: Any) -> Any:
        shuffler: Any = ShuffledBatches(parties.study, session).shuffler(0)
        shuffler.open(1, 9)
        for _ in range(users):
            shuffler._count(np.full(shuffler.form.begins[-1], ones), 1)
        table = sum_of(key, parties.study.identity, 0, shuffler, 1)
        if other:
            content = {**table["content"], **other}
            table = {"content": content, "signature": key.sign("discreet shuffler, 1", content)}
        return parties.http.post("/sums", json=table)

    (tmp_path / "other").mkdir()
    stranger = a_key(tmp_path / "other")
    tampered = sum_of(
        parties.key, parties.study.identity, 0, ShuffledBatches(parties.study, session).shuffler(0), 1
    )
    tampered["content"]["absent"] = 0
    refused = [
        (parties.http.post("/sums", json=tampered), 401, "signed"),
        (summed(key=stranger), 401, "signed"),
        (summed(ones=10**6), 400, "messages of this form"),
        (summed(users=2), 400, "of 1 users"),
        (summed(counts=None), 400, "missing"),
        (summed(counts="AAAA"), 400, "integers"),
        (summed(counts="é"), 400, "base64"),
        (summed(users=0, counts="AAAA"), 400, "at least"),
        (summed(identity="0" * 64), 400, "another study"),
        (summed(form="0" * 32), 400, "another study"),
        (summed(turn=1), 410, "no such batch"),
        (summed(turn=True), 400, "turn"),
        (summed(users=1, absent=0.0), 400, "absent"),
        (parties.http.post("/sums", json=[]), 400, "content and signature"),
        (parties.http.post("/sums", json={"content": {}, "signature": 1}), 401, "signed"),
    ]
    for answer, code, words in refused:
        assert (answer.status_code, words in answer.json()["words"]) == (code, True), answer.json()
    assert parties.service.store.sum_of(0) is None
    assert not parties.service.writer.step()
    assert [summed(ones=1).status_code for _ in range(2)] == [202, 202]
    assert summed(ones=2).status_code == 409
    parties.turn()
    assert summed(ones=1).status_code == 202
    assert summed(ones=2).status_code == 409
    for path in ("/places", "/messages", "/tickets"):  # people have nothing to say to the service
        assert parties.http.post(path, json={}).status_code == 404


def test_a_shuffler_refuses_plans_that_the_study_does_not_say(parties: Parties) -> None:
    """Less noise, other batches, another shuffler, another study: no user is asked to take part."""
    real = json.loads(parties.service.shown[0])["content"]
    form: Any = device_from_bytes(base64.b64decode(real["form"]))
    quiet = replace(form, families=tuple(replace(one, flips=2, coin=1) for one in form.families))
    plan = real["plans"][0]

    def shown(key: Any = parties.service_key, **other: Any) -> None:
        content = {**copy.deepcopy(real), **other}
        signature = key.sign("discreet plan, 1", content)
        body = json.dumps({"content": content, "key": key.public, "signature": signature}).encode()
        parties.service.shown = body, '"a tag"'

    cases: list[tuple[dict[str, Any], str]] = [
        ({"key": parties.key}, "not signed"),
        ({"identity": "0" * 64}, "another study"),
        ({"form": base64.b64encode(quiet.to_bytes()).decode()}, "other noise"),
        ({"plans": [{**plan, "users": 2}]}, "inside a batch"),
        ({"plans": [plan, {**plan, "number": 2}]}, "several batches"),
        ({"plans": [{**plan, "users": 1.0}]}, "at least one user"),
        ({"shuffler": {"url": "http://elsewhere", "key": "0" * 64}}, "another shuffler"),
        ({"trust": "local"}, "another kind"),
        ({"turn": 3}, "one was lost"),
        ({"form": None}, "form"),
    ]
    for change, words in cases:
        shown(**change)
        with pytest.raises(ValueError, match=words):
            parties.forwarder.step()
        assert parties.shuffler.store.plans() == []
    shown()
    assert parties.forwarder.step()
    assert parties.shuffler.store.about()["turn"] == 0
