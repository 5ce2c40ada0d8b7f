"""A rehearsal tells what would happen."""

from __future__ import annotations

from serving import a_study

from discreet.service.dry_run import run_dry


def test_a_rehearsal_tells_what_would_happen() -> None:
    result = run_dry(a_study().for_dry_run(20))
    assert (result.users, sum(users for users, _ in result.values)) == (20, 20)
    assert 0.0 <= result.late <= result.optimal
    assert result.releases == 5  # after 0, 1, 2, 4, 8, 16
