"""Tables of a study that are computed once: a Parquet file each, with the facts that made it.

A file is used again if its facts (settings, seeds, version of the library) are those asked for; else it is
computed anew and replaced. Files are written aside and renamed, so a study that was stopped goes on.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from discreet.experiments.results import write_aside

__all__ = ["Columns", "file_name", "kept"]

Columns = Mapping[str, Sequence[Any]]
_FACTS = b"facts"


def file_name(*parts: object) -> str:
    """A file's name from the words that tell it from others, in plain letters."""
    words = (str(part).replace("ρ", "rho").replace("ε", "epsilon").replace("÷", "over") for part in parts)
    return "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", word).strip("-") for word in words) + ".parquet"


def kept(path: Path, facts: Mapping[str, Any], make: Callable[[], Columns]) -> dict[str, list[Any]]:
    """The columns stored at ``path`` if made from these facts, else those of ``make``, now stored.

    ``facts`` must be plain JSON values; columns are lists of equal length of numbers, words or None.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from discreet import __version__

    words = json.dumps({**facts, "version": __version__}, sort_keys=True, ensure_ascii=False).encode()
    if path.exists():
        table = pq.read_table(path)
        if (table.schema.metadata or {}).get(_FACTS) == words:
            return {name: table[name].to_pylist() for name in table.column_names}
    columns = {name: list(values) for name, values in make().items()}
    table = pa.table(columns).replace_schema_metadata({_FACTS: words})
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, content.getvalue())
    return columns
