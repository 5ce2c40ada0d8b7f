from collections.abc import Iterator

import pytest
from drawn import drawn_once


@pytest.fixture(scope="module")
def equal_figures_drawn_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        drawn_once(patch)
        yield
