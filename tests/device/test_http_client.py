"""Messages that the client keeps, and refusals that are final."""

import json
import math

import pytest

pytest.importorskip("httpx")

from discreet.device.http_client import Message, NoAnswer, Turned


def test_a_kept_message_comes_back_and_no_other_bytes_do() -> None:
    message = Message({"ticket": "t", "message": "AAAA"}, plan=3, until=12.5)
    kept = message.to_bytes()
    assert Message.from_bytes(kept) == message
    table = json.loads(kept)
    for change in ({"plan": "3"}, {"plan": True}, {"until": None}, {"table": []}, {"discreet": "another"}):
        with pytest.raises(ValueError, match="must be the bytes of a message"):
            Message.from_bytes(json.dumps({**table, **change}).encode())
    for content in (b"", b"[]", kept.replace(b"12.5", b"1e999")):
        with pytest.raises(ValueError, match="must be the bytes of a message"):
            Message.from_bytes(content)
    with pytest.raises(ValueError, match="JSON"):
        Message({"x": math.nan}).to_bytes()


def test_what_a_message_holds_is_in_no_text() -> None:
    assert "AAAA" not in repr(Message({"message": "AAAA"}))


def test_only_a_full_plan_is_worth_another_try() -> None:
    assert not Turned(503, "full", "all places are taken", 5.0).final
    assert Turned(409, "late", "the plan is closed").final
    one = Message({}, plan=1)
    assert NoAnswer("nothing came", [one]).message is one
    assert NoAnswer("nothing came").message is None
