"""Sentences and labels of the privacy statement and its pages, by version of the statement.

``phrases.toml`` contains the strings of the newest version, and ``phrases_4.toml`` the strings that were
different in version 4. Sentences that claim something about epsilon, delta, rho and mu are in
:mod:`discreet.accounting.text.sentence_templates`, where each of them is tested.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from discreet.accounting.text.sentence_templates import OLDEST, VERSION, words


@cache
def phrases(version: int = VERSION) -> Mapping[str, str]:
    """Return the strings of a version by key, for example ``"officer.made"``.

    The mapping also contains the templates of :func:`words`. Raises ``ValueError`` for a version that cannot
    be read.
    """
    claims = words(version)
    earlier = (f"phrases_{version}.toml",) if version == OLDEST else ()
    own = {
        f"{table}.{key}": text
        for name in ("phrases.toml", *earlier)
        for table, texts in tomllib.loads(Path(__file__).with_name(name).read_text("utf-8")).items()
        for key, text in texts.items()
    }
    return MappingProxyType({**claims, **own})
