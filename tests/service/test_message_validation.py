"""Messages are added in the order of tickets, and what is counted is in no file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
from serving import a_study, a_writer, begun, central, placed
from serving import stopped as time

from discreet.service.message_validation import CentralAdmission

from .test_database import a_batch


def test_messages_are_added_in_the_order_of_tickets_and_removed(tmp_path: Path) -> None:
    study = a_study()
    store = begun(study, tmp_path / "a.db")
    writer = a_writer(study, store)
    while sum(one["users"] for one in store.plans()) < 3:
        a_batch(study, store)
        assert writer.step()
    while store.sweep():
        pass
    tickets = store.new_tickets(sum(one["users"] for one in store.plans()))
    plans = placed(store, tickets)
    admission = CentralAdmission(study.layout)
    found = [
        admission.answer(central(ticket, plan, 50 + i, states=[i % 3, 1, 2, 1, 0]))
        for i, (ticket, plan) in enumerate(zip(tickets, plans, strict=True))
    ]
    for one in reversed(found):
        store.admit([one], time.time(), 60.0)
    stored = [body for plan in sorted(set(plans)) for body in store.messages(plan)]
    assert stored == [one.body for one in found]
    assert writer.step()
    while store.sweep():
        pass
    with sqlite3.connect(tmp_path / "a.db") as raw:
        assert raw.execute("SELECT count(*) FROM messages").fetchone() == (0,)
        assert raw.execute("SELECT count(*) FROM tickets WHERE due IS NOT NULL").fetchone() == (0,)


def test_what_is_counted_is_in_no_file(tmp_path: Path) -> None:
    """Fourteen batches: while one is open its messages are in the log; once they are swept no file has them.

    Every reward is a number that was drawn for it alone.
    """
    study = a_study(users=400, schedule={"replan_growth": 1.2})
    store = begun(study, tmp_path / "a.db")
    writer, admission = a_writer(study, store), CentralAdmission(study.layout, study.rewards)
    draw, planted, seen = np.random.default_rng(3), list[bytes](), 0

    def held() -> int:
        files = b"".join(one.read_bytes() for one in sorted(tmp_path.iterdir()))
        return sum(one in files for one in planted)

    for number in range(14):
        tickets = store.new_tickets(max(4, sum(one["users"] for one in store.plans())))
        tickets = tickets[: sum(one["users"] for one in store.plans())]
        for at, (ticket, plan) in enumerate(zip(tickets, placed(store, tickets), strict=True)):
            rewards = draw.random(4)
            planted += [one.tobytes() for one in rewards]
            sent = central(ticket, plan, 1000 * number + at, rewards=rewards.tolist())
            assert store.admit([admission.answer(sent)], time.time(), 60.0)[0].status == "counted"
        seen += held() > 0
        assert writer.step()
        while store.sweep():
            pass
        assert held() == 0
        assert (tmp_path / "a.db-wal").stat().st_size == 0
    assert seen == 14  # the search finds what is there
    store.close()
    assert [one.name for one in tmp_path.iterdir()] == ["a.db"]
    assert held() == 0
