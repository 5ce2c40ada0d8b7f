"""Numbers on the page of a statement are never better than the guarantee, and limits are named."""

import math
from pathlib import Path

import numpy as np

from discreet.accounting.text.sentence_templates import NOW
from discreet.reports.statement_page import hundredths, limit_words, never_certain, stated_in, times


def test_printed_numbers_are_rounded_up() -> None:
    rng = np.random.default_rng(1)
    for rate in rng.random(200) ** 4:
        assert float(hundredths(rate)) >= 100 * rate * (1 - 1e-12)
    for epsilon in rng.random(200) * 13.7:
        assert float(times(epsilon, NOW).replace(",", "")) >= math.exp(epsilon) * (1 - 1e-12)
    assert "∞" in times(math.inf, NOW)


def test_a_folder_that_is_broken_tells_nothing(tmp_path: Path) -> None:
    assert stated_in(tmp_path, "a") is None
    (tmp_path / "statement.json").write_text('{"a": {"b": 3}}')
    assert stated_in(tmp_path, "a", "b") == 3
    assert stated_in(tmp_path, "a", "c") is None
    assert stated_in(tmp_path, "a", "b", "c") is None


def test_only_exact_noise_alone_excludes_no_record() -> None:
    def document(randomness: str, *kinds: str) -> dict[str, object]:
        mechanisms = [{"record": {"kind": kind}} for kind in kinds]
        return {"guarantee": {"randomness": randomness}, "mechanisms": mechanisms}

    assert never_certain(document("secure", "noise", "noise"))
    assert not never_certain(document("seeded", "noise"))
    assert not never_certain(document("secure", "noise", "flips"))


def test_limits_are_named_with_who_signed_them() -> None:
    assert limit_words({"limit_epsilon": None}) == "NO LIMIT IS SET"
    limit = {"limit_epsilon": 2.0, "limit_delta": 1e-6}
    assert limit_words(limit) == "limit ε = 2 at δ = 1e-06, not signed"
    assert limit_words({**limit, "limit_key": "k"}).endswith("signed with the key k")
