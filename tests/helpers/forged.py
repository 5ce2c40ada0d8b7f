"""A ledger as somebody rewrites it who may write both of its files."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

Edit = Callable[[list[dict[str, Any]]], Any]


def rewrite(path: Path, edit: Edit) -> None:
    """Entries are edited, then numbered, chained and hashed; the head follows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rows = connection.execute("SELECT text FROM entries ORDER BY number").fetchall()
        entries = [json.loads(text) for (text,) in rows]
        edit(entries)
        connection.execute("DELETE FROM entries")
        previous = ""
        for number, one in enumerate(entries, 1):
            linked = {**one, "number": number, "previous": previous}
            text = json.dumps(linked, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            previous = hashlib.sha256(text.encode()).hexdigest()
            connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, text, previous))
    path.with_name(path.name + ".head").write_text(f"{len(entries)} {previous}\n")
