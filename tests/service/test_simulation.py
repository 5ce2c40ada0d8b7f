"""The service under simulated faults: what it promises holds, and planted faults are found.

``python -m benchmarks.service_simulation`` simulates more seeds, and all planted faults.
"""

from __future__ import annotations

from pathlib import Path

import planted_service_faults as planted
import pytest
from service_simulation import StoreName, World, simulate, stand_ins
from serving import Clocked, a_study, begun, stopped

from discreet.service.database import ReservationRequest, hashed

# the newest database was refused, because it had grown by two releases after its head was read
FOUND = [288, 563]


@pytest.mark.parametrize(("kind", "seeds"), [("dictionary", 150), ("sqlite", 12)])
def test_nothing_is_violated(kind: StoreName, seeds: int) -> None:
    with stand_ins(kind):
        for seed in [*FOUND, *range(10_000, 10_000 + seeds)]:
            world = simulate(seed, kind)
            assert not world.violation, f"seed {seed}: {world.violation}\n" + "\n".join(world.trace)


def test_a_seed_is_one_course_of_events() -> None:
    with stand_ins("dictionary"):
        worlds = [simulate(7, "dictionary") for _ in range(2)]
    first, second = ((one.loop.events, one.trace, one.released, one.log) for one in worlds)
    assert first == second
    assert worlds[0].log


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("202 before the commit", "sqlite"),
        ("absent counted twice", "sqlite"),
        ("messages of the open batch removed", "sqlite"),
        ("clock: closed when all have answered", "sqlite"),
        ("clock: an answer joins the batch of its plan", "sqlite"),
        ("withdrawal after the batch is complete", "sqlite"),
        ("withdrawal: the message stays", "sqlite"),
        ("person: open place ignored", "sqlite"),
        ("person: checked at the answer", "sqlite"),
        ("person: key changes", "sqlite"),
        ("person: last batch not updated", "sqlite"),
        ("person: absent counts as taking part", "sqlite"),
        ("person: not written", "sqlite"),
        ("batch closed one early", "dictionary"),
        ("state stored apart from the release", "dictionary"),
        ("clock of the process", "dictionary"),
        ("beats not written", "dictionary"),
        ("beats not in the head", "dictionary"),
        ("head not compared", "sqlite"),
        ("missing head accepted", "dictionary"),
        ("head read after the database", "dictionary"),
        ("head written before the commit", "dictionary"),
        ("head written after the release is shown", "dictionary"),
        ("torn line of the head kept", "dictionary"),
        ("client: new nonce at a retry", "dictionary"),
        ("client: 502 is final", "dictionary"),
    ],
)
def test_a_planted_fault_is_found(name: str, kind: StoreName) -> None:
    with stand_ins(kind), planted.planted_fault(name) as more:
        assert any(simulate(seed, kind, **more).violation for seed in range(200))


def test_no_copy_older_than_2_seconds_is_served() -> None:
    """100 copies that are put back 2 to 6 s after they were made, while both processes are well."""

    class Aged(World):
        checks_age = True

    with stand_ins("dictionary"):
        for seed in range(20_000, 20_100):
            world = simulate(seed, "dictionary", world=Aged)
            assert not world.violation, f"seed {seed}: {world.violation}"
            assert world.aged == 1
            assert world.refusals >= 2


@pytest.mark.parametrize("name", planted.HARMLESS)
def test_what_is_harmless_is_not_reported(name: str) -> None:
    with stand_ins("dictionary"), planted.planted_fault(name) as more:
        assert not any(simulate(seed, "dictionary", **more).violation for seed in range(60))


def test_all_faults_are_planted_in_a_store_or_in_a_client() -> None:
    assert set(planted.PLANTED) >= planted.REAL_ONLY
    assert not set(planted.PLANTED) & set(planted.HARMLESS)


# ------------------------------------------------------------------------- what the simulation found
def test_a_reservation_of_a_fast_clock_is_shortened(tmp_path: Path) -> None:
    """The clock was an hour fast for less than a lease: the reservation that it wrote ends in time."""
    for close in ("all", "resolved"):
        study = a_study(serving={"close": close})
        store = begun(study, tmp_path / f"{close}.db")
        now = stopped.time()
        store.admit([ReservationRequest(hashed(store.new_tickets(1)[0]))], now + 3600.0, 60.0)
        assert store.mark_expired(now, None, 60.0) == 0
        assert store.waiting() == (1, now + 60.0)
        assert store.mark_expired(now + 59.0, None, 60.0) == 0
        assert store.mark_expired(now + 60.0, None, 60.0) == 1
        store.close()


def test_processes_of_a_sqlite_database_have_the_clock_of_their_machine(tmp_path: Path) -> None:
    store, io = begun(a_study(), tmp_path / "a.db"), Clocked(lambda: 5.0)
    assert store.clocked(io) is io
    other = io.with_clock(lambda: 7.0)
    assert (io.now(), other.now()) == (5.0, 7.0)
    store.close()
