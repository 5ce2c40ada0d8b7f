"""Requests that no client sends: none is answered by 500, none is taken by mistake, no sum moves.

``DISCREET_FUZZ`` says how many of our own for each kind of trust (default 5 000); schemathesis makes its own
from the descriptions, of whatever people, shufflers and operators send.
"""

from __future__ import annotations

import base64
import copy
import json
import logging
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import a_key, a_study, central, context_table
from waiting import wait_until

from discreet.device.http_client import Client
from discreet.device.published_device import device_from_bytes
from discreet.service.batch_sums import ShuffledBatches, sum_of
from discreet.service.dry_run import promised_by
from discreet.service.server import all_in_background, both_in_background
from discreet.service.study_config import study_of

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]

MANY = int(os.environ.get("DISCREET_FUZZ", "5000"))
JUNK: list[Any] = [
    None, True, -1, 0, 1, 3, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, "", "0", "\x00", "é", "a" * 5000,
    [], [[]], [0] * 5, [0.5] * 4, [None] * 4, ["0"] * 4, [True] * 4, {}, {"a": 1}, [2**70] * 5,
]  # fmt: skip


CANARY = 0.4718281828  # a person's reward
NONCE = 0x4718281828459045


@pytest.fixture(params=["central", "local", "shuffle", "contexts"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Any, str]]:
    """(address, service, trust) of a study whose first plan waits for one person: of whom she sends to."""
    one_person = context_table(1000, learner={"name": "linear-bandit", "first": 1})
    study = study_of(one_person) if request.param == "contexts" else a_study(1000, request.param)
    with all_in_background(study, tmp_path, a_key(tmp_path)) as (url, front, *_):
        yield url, front, request.param


def junk(luck: random.Random) -> Any:
    """Some value, nobody else's."""
    return copy.deepcopy(luck.choice(JUNK))


def changed(luck: random.Random, table: dict[str, Any]) -> Any:
    """A message with one to three faults; perhaps none that matters."""
    found: Any = json.loads(json.dumps(table))
    for _ in range(luck.randint(1, 3)):
        kind, name = luck.randrange(7), luck.choice(sorted(found))
        if kind == 0:
            found[name] = junk(luck)
        elif kind == 1:
            del found[name]
        elif kind == 2:
            found[luck.choice(["x", "Ticket", "messages", "tickets", "__proto__"])] = junk(luck)
        elif isinstance(found[name], list) and found[name]:
            found[name][luck.randrange(len(found[name]))] = junk(luck)
        elif isinstance(found[name], str) and found[name]:
            at = luck.randrange(len(found[name]))
            found[name] = (
                found[name][:at] + luck.choice("0AZ/=+é\x00") + found[name][at + luck.randint(0, 1) :]
            )
        else:
            found[name] = junk(luck)
        if not found:
            break
    return found


def is_taken(path: str, code: int, said: Any, ticket: str, table: Any) -> bool:
    """Was something accepted that no person, shuffler or operator of the study asked for so?"""
    if code >= 300 or path == "/tickets":
        return code < 300  # nobody here has an operator's token
    if path == "/places" and isinstance(table, dict):  # of this person, again: the same place
        asked = table["tickets"] if "tickets" in table else [table["ticket"]]
        results = said.get("results", [said])
        return any(
            one["status"] == "placed" and own != ticket for one, own in zip(results, asked, strict=True)
        )
    return path == "/places" or any(one["status"] == "counted" for one in said.get("results", [said]))


def is_good(table: Any, trust: str, ticket: str, envelope: str) -> bool:
    """Would this have been a proper message of this ticket to plan 1? Written apart from the service."""
    if not isinstance(table, dict) or table.get("ticket") != ticket:
        return False
    if trust not in ("central", "contexts"):
        try:
            same = base64.b64decode(table["message"], validate=True) == base64.b64decode(envelope)
        except (KeyError, TypeError, ValueError):
            return False
        return same and set(table) == {"ticket", "message"}

    def listed(name: str, size: int, good: Any) -> bool:
        found = table.get(name)
        return isinstance(found, list) and len(found) == size and all(map(good, found))

    def whole(below: int) -> Any:
        return lambda one: type(one) is int and 0 <= one < below

    def context(one: Any) -> bool:
        numbers = isinstance(one, list) and len(one) == 4
        return numbers and all(x is None or (type(x) in (int, float) and -1 <= x <= 1) for x in one)

    name, size, good, steps, actions = "states", 5, whole(3), 4, 2
    if trust == "contexts":
        name, size, good, steps, actions = "contexts", 1, context, 1, 3
    return (
        set(table) == {"ticket", "plan", "nonce", name, "actions", "rewards"}
        and type(table["plan"]) is int
        and table["plan"] == 1
        and isinstance(table["nonce"], str)
        and len(table["nonce"]) == 32
        and all(digit in "0123456789abcdefABCDEF" for digit in table["nonce"])
        and listed(name, size, good)
        and listed("actions", steps, whole(actions))
        and listed("rewards", steps, lambda one: type(one) in (int, float) and 0 <= one <= 1)
    )


def test_our_own(
    served: tuple[str, Any, str], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    url, service, trust = served
    import httpx

    caplog.set_level(logging.DEBUG, "discreet")
    caplog.set_level(logging.DEBUG, "uvicorn")
    luck, codes, accepted = random.Random(11), Counter[int](), 0
    how: dict[str, Any] = {"promised": promised_by(service.study)}
    how |= {"shuffler": url} if trust == "shuffle" else {}
    with httpx.Client(base_url=url) as http, Client(url, **how) as client:
        ticket = service.store.new_tickets(1)[0]
        place = client.place(ticket)
        record: tuple[Any, ...] = ([0, 1, 2, 1, 0], [0, 0, 1, 0], [CANARY, 1.0, 0.5, 0.0])
        if trust == "contexts":
            record = [[0.5, None, 1, -1.0]], [1], [CANARY]
        else:
            record[1][0] = int(place.action(0, 0))
        good = dict(place.message(*record).table)
        if trust == "contexts":
            good["nonce"] = f"{NONCE:032x}"
        if trust == "central":
            good = central(ticket, 1, NONCE, rewards=[CANARY, 1.0, 0.5, 0.0])
        canaries = ticket, good.get("message", f"{NONCE:x}")[:64], str(CANARY)[2:], "__proto__"
        for _ in range(MANY):
            table = changed(luck, good)
            path = luck.choice(["/messages"] * 8 + ["/places", "/tickets"])
            if is_good(table, trust, ticket, good.get("message", "")) and path == "/messages":
                continue  # it would count, rightly
            content, read = json.dumps(table).encode(), table
            if luck.random() < 0.1:  # bytes that fell over on the way
                wrong = bytearray(content)
                for _ in range(luck.randint(1, 5)):
                    wrong[luck.randrange(len(wrong))] = luck.randrange(256)
                content, read = bytes(wrong), None
                with suppress(ValueError):
                    read = json.loads(content)
                if is_good(read, trust, ticket, good.get("message", "")):
                    continue
            answer = http.post(path, content=content)
            codes[answer.status_code] += 1
            assert answer.status_code < 500, content
            accepted += is_taken(path, answer.status_code, answer.json(), ticket, read)
            assert not any(one in answer.text for one in canaries)
        assert accepted == 0
        assert [(one["came"], one["users"]) for one in service.store.plans()] == [(0, 1)]
        assert http.post("/messages", json=good).status_code == 202
    wait_until(lambda: service.turn >= 1)
    assert service.writer.refused == 0
    said = caplog.text + "".join(capfd.readouterr()) + httpx.get(f"{url}/metrics").text
    assert not any(one in said for one in canaries)  # of what was sent nothing is told
    print(f"\n{trust}: {sum(codes.values())} requests, answers {dict(sorted(codes.items()))}")


def test_sums(tmp_path: Path) -> None:
    """What the shuffler sends, with faults: signed by it or not, none is taken that is not of this batch."""
    import httpx

    with both_in_background(a_study(1000, "shuffle"), tmp_path, a_key(tmp_path)) as (
        _,
        shuffler,
        url,
        service,
    ):
        session = device_from_bytes(bytes(shuffler.store.about()["form"])).session
        batch: Any = ShuffledBatches(service.study, session).shuffler(0)
        batch.open(1, 1)
        batch._count(np.ones(batch.form.begins[-1], np.int64), 1)
        good = sum_of(shuffler._key, service.study.identity, 0, batch, 1)
        luck, codes = random.Random(12), Counter[int]()
        with httpx.Client(base_url=url) as http:
            for _ in range(MANY // 5):
                if luck.random() < 0.5:
                    table = changed(luck, good)
                else:  # a shuffler that is wrong itself
                    content = changed(luck, good["content"])
                    if content == good["content"]:
                        continue
                    text = json.dumps(content, sort_keys=True)
                    table = {"content": json.loads(text), "signature": ""}
                    with suppress(ValueError):  # what is no JSON cannot be signed
                        table["signature"] = shuffler._key.sign("discreet shuffler, 1", table["content"])
                if table == good:
                    continue
                answer = http.post("/sums", content=json.dumps(table).encode())
                codes[answer.status_code] += 1
                assert 400 <= answer.status_code < 500, (answer.text, table)
            assert service.store.sum_of(0) is None
            assert http.post("/sums", json=good).status_code == 202
        print(f"\nsums: {sum(codes.values())} requests, answers {dict(sorted(codes.items()))}")


@pytest.mark.skipif(not find_spec("schemathesis"), reason="pip install schemathesis")
@pytest.mark.parametrize("of", ["central", "local", "shuffler", "service of a shuffler"])
def test_by_schemathesis(
    of: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "discreet")
    caplog.set_level(logging.DEBUG, "uvicorn")
    study = a_study(1000, of if of in ("central", "local") else "shuffle")
    with all_in_background(study, tmp_path, a_key(tmp_path)) as (url, front, address, behind):
        asked, service = (address, behind) if of == "service of a shuffler" else (url, front)
        token = service.store.new_token()
        ended = subprocess.run(
            [
                sys.executable, "-m", "schemathesis.cli", "run", f"{asked}/openapi.json", "--checks",
                "not_a_server_error,status_code_conformance,response_schema_conformance",
                "--max-examples", str(max(20, MANY // 100)), "--seed", "1",
                "--suppress-health-check", "too_slow",  # of its own making of data, not of the service
                "-H", f"Authorization: Bearer {token}", "-H", f"X-Person: {CANARY}",
            ],
            capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
        assert (service.writer.refused, service.failed) == (0, "")  # (with the token it may take part itself)
        if study.shuffled:
            assert behind.store.sum_of(0) is None  # nobody but the shuffler can sign one
        said = caplog.text + "".join(capfd.readouterr())
        assert token not in said
        assert str(CANARY)[2:] not in said
    print(f"\n{of}:", ended.stdout[-1500:])
