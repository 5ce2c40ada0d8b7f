"""Turn the last value of prepared states into a column of groups for ``[groups]``.

    python docs/examples/ward/add_groups.py by-sex sex

reads ``rows.parquet`` and ``schema.toml`` in the folder ``by-sex``. The labels of the states must end in
" / sex=LABEL". It writes ``grouped.parquet`` (readable only by its owner, mode 0600) and ``grouped.toml`` to
the same folder.
"""

import json
import os
import re
import sys
from pathlib import Path

import pandas as pd

import discreet as dr


def main(folder: Path, name: str) -> None:
    """Write ``grouped.parquet`` and ``grouped.toml`` to the folder.

    folder : output of ``discreet prepare``. name : name of the last value of each state. The new column has
    the same name.
    """
    ending = rf" / {re.escape(name)}=(.*)$"
    schema = dr.read_schema(folder / "schema.toml")
    found = [re.search(ending, label) for label in schema.state_labels]
    # the group labels are read from the public schema, never from the private rows
    labels = dict.fromkeys(one[1] for one in found if one)
    if not labels:
        raise SystemExit(f"{folder / 'schema.toml'}: states must end in ' / {name}=LABEL'")

    rows = pd.read_parquet(folder / "rows.parquet")
    rows[name] = rows["state"].astype(str).str.extract(ending)[0]
    for column in ("state", "next_state"):
        rows[column] = rows[column].astype(str).str.replace(ending, "", regex=True)
    target = folder / "grouped.parquet"
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    os.chmod(target, 0o600)
    rows.to_parquet(target)

    states = [*dict.fromkeys(re.sub(ending, "", label) for label in schema.state_labels)]
    line = f"states = {{ labels = {json.dumps(states, ensure_ascii=False)} }}"
    text = (folder / "schema.toml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^states = \{.*$", lambda _: line, text)
    text = text.replace("[provenance]\n", '[provenance]\ngroups = "protocol"\n')
    text += f"\n[groups]\ncolumn = {json.dumps(name)}\nlabels = {json.dumps([*labels], ensure_ascii=False)}\n"
    (folder / "grouped.toml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
