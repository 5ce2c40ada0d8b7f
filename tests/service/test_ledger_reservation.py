"""The reservation of a study in the ledger."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import a_writer, central, placed, table

import discreet as dr
from discreet.ledger.ledger import LedgerError
from discreet.service.database import Store
from discreet.service.error_causes import cause
from discreet.service.message_validation import admission_of
from discreet.service.release_worker import Writer
from discreet.service.server import opened
from discreet.service.study_config import read_study, study_of
from discreet.utils.toml_file import to_toml

NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


def a_booked_study(folder: Path, trust: str = "central") -> Any:
    path = folder / "study.toml"
    path.write_text(to_toml(table(20, trust, ledger={"dataset": "people-1", "path": "ledger.sqlite"})))
    return read_study(path)


def kinds(folder: Path) -> list[str]:
    with dr.Ledger.open(folder / "ledger.sqlite") as ledger:
        return [one.kind for one in ledger.entries() if one.kind != "begin"]


def first_release(study: Any, store: Store) -> Writer:
    (ticket,) = store.new_tickets(1)
    (plan,) = placed(store, [ticket])
    answer = admission_of(study, b"").answer(central(ticket, plan))
    store.admit([answer], NOW, 60.0)
    writer = a_writer(study, store)
    assert writer.step()
    return writer


def test_the_ledger_is_marked_at_release_1_and_a_database_lost_after_it_is_charged_anew(
    tmp_path: Path,
) -> None:
    study = a_booked_study(tmp_path)
    opened(study, str(tmp_path / "lost before anything.db")).close()
    with closing(opened(study, str(tmp_path / "a.db"))) as store:  # the same reservation: nothing came of it
        assert kinds(tmp_path) == ["reserve"]
        first_release(study, store).release_lease()
        assert kinds(tmp_path) == ["reserve", "mark"]
    with closing(opened(study, str(tmp_path / "a.db"))) as store:  # it goes on
        writer = a_writer(study, store)
        tickets = store.new_tickets(1)
        answer = admission_of(study, b"")
        store.admit([answer.answer(central(tickets[0], placed(store, tickets)[0], 9))], NOW, 60.0)
        assert writer.step()
    with closing(opened(study, str(tmp_path / "lost before anything.db"))) as store:  # was not lost after all
        with pytest.raises(LedgerError, match="is that of another database of this study") as found:
            first_release(study, store)
        assert "begin again with an empty database" in cause(found.value)
        assert store.release(1) is None  # nothing was drawn
    opened(study, str(tmp_path / "new.db")).close()
    assert kinds(tmp_path) == ["reserve", "mark", "reserve"]


def test_under_local_trust_a_database_is_charged_before_anybody_is_asked(tmp_path: Path) -> None:
    """The server has seen people's messages of a database that was lost before release 1."""
    study = a_booked_study(tmp_path, "local")
    opened(study, str(tmp_path / "lost.db")).close()
    assert kinds(tmp_path) == ["reserve", "mark"]
    opened(study, str(tmp_path / "lost.db")).close()  # it goes on
    assert kinds(tmp_path) == ["reserve", "mark"]
    opened(study, str(tmp_path / "new.db")).close()
    assert kinds(tmp_path) == ["reserve", "mark", "reserve", "mark"]


def test_a_reservation_is_found_again_by_all_that_it_says(tmp_path: Path) -> None:
    records: Any = study_of(table(20)).guarantee.records
    how: dict[str, Any] = {"delta": 1e-6, "users": 20, "purpose": "a study", "once": True}
    with dr.Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        first = ledger.reserve("people", records, **how)
        assert ledger.reserve("people", records, **how) == first
        told = [replace(records[0], mechanism="another one of the same epsilon"), *records[1:]]
        assert ledger.reserve("people", told, **how) != first
        others: list[dict[str, Any]] = [
            {"purpose": "another"},
            {"users": 21},
            {"delta": 1e-7},
            {"once": False},
        ]
        assert (
            len({ledger.reserve("people", records, **how | one).number for one in others} - {first.number})
            == 4
        )
        with pytest.raises(ValueError, match="purpose = ''"):
            ledger.reserve("people", records, **how | {"purpose": ""})
        for _ in range(2):  # the first one, and the one that was not asked for once
            ledger.mark(ledger.reserve("people", records, **how), {})
        assert ledger.reserve("people", records, **how) != first
