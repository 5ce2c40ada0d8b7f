"""Messages that the client keeps, and refusals that are final."""

import json
import math

import pytest

pytest.importorskip("httpx")

from discreet.device.http_client import NoAnswer, PendingMessage, Turned


def test_a_kept_message_comes_back_and_no_other_bytes_do() -> None:
    message = PendingMessage({"ticket": "t", "message": "AAAA"}, plan=3, until=12.5)
    kept = message.to_bytes()
    assert PendingMessage.from_bytes(kept) == message
    table = json.loads(kept)
    for change in ({"plan": "3"}, {"plan": True}, {"until": None}, {"table": []}, {"discreet": "another"}):
        with pytest.raises(ValueError, match="must be the bytes of a message"):
            PendingMessage.from_bytes(json.dumps({**table, **change}).encode())
    for content in (b"", b"[]", kept.replace(b"12.5", b"1e999")):
        with pytest.raises(ValueError, match="must be the bytes of a message"):
            PendingMessage.from_bytes(content)
    with pytest.raises(ValueError, match="JSON"):
        PendingMessage({"x": math.nan}).to_bytes()


def test_what_a_message_holds_is_in_no_text() -> None:
    assert "AAAA" not in repr(PendingMessage({"message": "AAAA"}))


def test_only_a_full_plan_is_worth_another_try() -> None:
    assert not Turned(503, "full", "all places are taken", 5.0).final
    assert Turned(409, "late", "the plan is closed").final
    one = PendingMessage({}, plan=1)
    assert NoAnswer("nothing came", [one]).message is one
    assert NoAnswer("nothing came").message is None
