"""The statement for participants says who sees what."""

from __future__ import annotations

from serving import a_study

from discreet.service.participant_statement import make_participant_statement


def test_the_statement_says_who_sees_what() -> None:
    central, local = (
        make_participant_statement(a_study(trust=trust), None, "") for trust in ("central", "local")
    )
    assert "You must trust the operator" in central["who_sees_what"][0]
    assert "do not have to trust" in local["who_sees_what"][0]
    assert central["guarantee"]["epsilon"] <= 1.0
    assert central["ledger"].startswith("This study uses no ledger")
    assert not central["rehearsal"]
    assert make_participant_statement(a_study().for_dry_run(), None, "")["rehearsal"]


def test_the_statement_says_what_the_rule_of_the_database_does_not_cover() -> None:

    for close, told in (("resolved", True), ("all", False)):
        found = make_participant_statement(a_study(serving={"close": close}), None, "")
        assert ("does not cover when you answer" in found["side_channels"][-1]) == told
        assert ("whatever plan they follow" in found["absent"]["meaning"]) == told
    old = make_participant_statement(a_study(serving={}), None, "", "all")  # begun by an earlier version
    assert "whatever plan they follow" not in old["absent"]["meaning"]
