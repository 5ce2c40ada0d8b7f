"""Templates of sentences: versions that do not exist are refused."""

import pytest

from discreet.accounting.text.sentence_templates import words


def test_versions_that_are_not_are_refused() -> None:
    with pytest.raises(ValueError, match="version = 3"):
        words(3)
