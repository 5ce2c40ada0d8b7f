"""Template of a declaration, made only from the names and types of columns.

This module reads no cells. It reads the names and types in the footer of Parquet files, the first line of
text files, and the column names of data frames and database tables. Therefore the template can be shown to
anyone who may know the layout of the table. A first line that looks like data is rejected, because the
template would then contain data.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from discreet.data.schema import quoted
from discreet.data.sources import Broken, TableSource, Text, TextFile, places_of

_TRAJECTORY = ("user", "episode", "step", "state", "action", "reward", "next_state")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ID = _set(
    "id ids no nr num nbr number nummer key code identifier uuid guid hash pseudonym pseudo anon anonymized "
    "anonymised deidentified unique study"
)
# words that the name of a user or episode column can contain in addition to one of the nouns below
_BESIDE = _set("icu unit hospital record health system chart occurrence nhs")
_NOUNS = {  # nouns for a user or an episode; the column name can also contain words of _ID and _BESIDE
    "user": _set(
        "patient patients patienten subject subjects person persons participant member user customer client "
        "insured proband respondent individual pat subj pid mrn usubjid subjid ptid patid uid uniquepid seqn "
        "bene beneficiary"
    ),
    "episode": _set(
        "stay stays icustay episode admission encounter hadm visit session case spell hospitalization "
        "hospitalisation trajectory clm claim fallnummer"
    ),
}
_HINTS = {  # the name of the column must contain a word of the first set and no word of the second set
    "time": (
        _set(
            "time times date dates datetime dttm dtm dt timestamp stamp charted day days hour hours minute "
            "minutes when zeitpunkt datum dtc exstdtc"
        ),
        _set(
            "in of to per since until within between duration length zone birth dob death survival age week "
            "updated modified sleepiness"
        ),
    ),
    "end": (
        _set(
            "outcome outcomes status disposition destination discharge death dead died deceased "
            "mortality survived expired expire alive endpoint fate"
        ),
        _set(
            "marital smoking employment insurance occupational vaccination education payment order time date "
            "datetime day dt age score risk probability until"
        ),
    ),
    "action": (
        _set(
            "action actions drug drugs dose doses dosage medication medications medicine medicines treat "
            "treatment treatments trt therapy therapies rx infusion infusions vaso vasopressor vasopressors "
            "fluid fluids intervention interventions regimen medikament"
        ),
        _set("allergy allergies physician doctor center centre ward date time datetime day id type"),
    ),
    "reward": (_set("reward rewards return returns utility cost costs payoff revenue click"), _set("visit")),
}
# A column whose name contains one of these words is rarely the time of a row.
_LATER = _set("admit in out end stop start begin discharge disch order reg store")
_NUMBERS_ROWS = re.compile(
    r"unnamed: ?\d+(\.\d+)?|__index_level_\d+__|row_?names|row_?id|\.\.\.1", re.IGNORECASE
)
_CAPITAL = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_DATA = re.compile(r"^\s*[-+]?\d+([.,:/-]\d+)*([ T].*)?$")


def schema_template(
    where: Any,
    *,
    sql: str | None = None,
    reads: Sequence[str | Path] | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
) -> str:
    """Return a template of a declaration, as TOML text.

    If the columns are those of trajectory rows, return a template of a schema instead.

    Parameters
    ----------
    where, sql, reads, delimiter, encoding : see :func:`discreet.data.row_batches.open_source`

    Raises
    ------
    ValueError
        If the source cannot be read, or a text file has no line with column names.
    """
    columns: dict[str, str] = {}
    left: list[str] = []
    for place in places_of(where, Text(delimiter, encoding=encoding), sql, reads):
        for name, kind in _columns(place).items():
            if not name.strip() or _NUMBERS_ROWS.fullmatch(name):
                left.append(repr(name) if name.strip() else "one without a name")
            else:
                columns.setdefault(name, kind)
    lower = {name.lower(): name for name in columns}
    if all(name in lower for name in _TRAJECTORY):
        return _schema({name: lower[name] for name in _TRAJECTORY})
    return _declaration(columns, list(dict.fromkeys(left)))


def _columns(place: TableSource) -> dict[str, str]:
    """Return a mapping of the names of a source's columns to their types, as text.

    Raises :class:`.sources.Broken` if a column has no printable name. In text files, the first or the last
    column may have no name.
    """
    names = place.names()
    if isinstance(place, TextFile):
        wrong = _wrong(place, names)
        if wrong:
            raise Broken(f"{place.name}: its first line must name the columns, all differently; {wrong}")
    types = place.types()
    for name in names:
        if (not name.isprintable() or not name.strip()) and not (name == "" and isinstance(place, TextFile)):
            raise Broken(f"{place.name}: has a column without a printable name")
    return {name: "text file, no type" if types is None else _said(types[name]) for name in names}


def _wrong(place: TextFile, names: Sequence[str]) -> str:
    """Return the reason why the first line of a file cannot contain the column names; "" if it can.

    The reason quotes no text of the file. It gives only the numbers of fields and lines.
    """
    if any(_DATA.match(name) for name in names):
        return "it looks like a row of data, of which nothing is shown"
    named = [name for name in names if name.strip()]
    if not named:
        return "it is empty"
    if len(set(named)) < len(named):
        numbers = [str(i + 1) for i, name in enumerate(names) if name.strip() and names.count(name) > 1]
        return f"its fields {', '.join(numbers)} are not all different; perhaps it is a row of data"
    if len(names) == 1 and (line := place.wider_line()) is not None:
        return f"it has one field, and line {line} has more: take out the lines above the names"
    first, last = names.index(named[0]), len(names) - 1 - names[::-1].index(named[-1])
    if first > 1 or any(not name.strip() for name in names[first : last + 1]):
        number = next(i for i, name in enumerate(names, 1) if not name.strip() and i > 1)
        return f"its field {number} is empty: give that column a name"
    return ""


def _said(kind: Any) -> str:
    """Return the general kind of an Arrow type, such as "integer" or "text".

    The full type is not shown, because the type of an enumeration, for example, can contain data values.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    for test, word in (
        (pa.types.is_integer, "integer"),
        (pa.types.is_floating, "number"),
        (pa.types.is_decimal, "number"),
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_temporal, "time"),
        (pa.types.is_string, "text"),
        (pa.types.is_large_string, "text"),
        (pa.types.is_string_view, "text"),
    ):
        if test(kind):
            return word
    return "of another type"


@lru_cache(4096)
def _words(name: str) -> frozenset[str]:
    """Return the words of a column name in lower case.

    For example, PatientID, patient_id and patientid all have the words "patient" and "id".
    """
    apart = _CAPITAL.sub(" ", unicodedata.normalize("NFKC", name))
    return frozenset(part for word in _WORD.findall(apart.replace("_", " ")) for part in _parts(word.lower()))


def _parts(word: str) -> tuple[str, ...]:
    """Split a word into the smallest number of known words; return the word itself if that is impossible."""
    ways: list[tuple[str, ...] | None] = [()]
    for end in range(1, len(word) + 1):
        begins = [
            (*way, word[begin:end])
            for begin, way in enumerate(ways)
            if way is not None and word[begin:end] in _known()
        ]
        ways.append(min(begins, key=len, default=None))
    return ways[-1] or (word,)


@cache
def _known() -> frozenset[str]:
    """Return all words of ``_ID``, ``_BESIDE``, ``_NOUNS``, ``_HINTS`` and ``_LATER``."""
    lists = [*_NOUNS.values(), *(part for pair in _HINTS.values() for part in pair)]
    return frozenset().union(_ID, _BESIDE, _LATER, *lists)


def _like(role: str, columns: Mapping[str, str], taken: Sequence[str] = ()) -> list[str]:
    """Return the columns not in ``taken`` whose names contain a word for this role, best match first."""
    free = [name for name in columns if name not in taken]
    if role in _HINTS:
        own, barred = _HINTS[role]
        found = [name for name in free if _words(name) & own and not _words(name) & barred]
        return sorted(found, key=lambda name: bool(_words(name) & _LATER)) if role == "time" else found
    own, other = _NOUNS[role], _NOUNS["episode" if role == "user" else "user"]
    # the name must contain no other words: a column "patient weight" does not identify a patient
    whole = own | other | _ID | _BESIDE
    found = [name for name in free if _words(name) & own and _words(name) <= whole]
    # "patient stay" names an episode, not a user; "number" can identify a user if no other column does
    if role == "user":
        found = [name for name in found if not _words(name) & other]
        found += [name for name in free if "id" in _words(name) <= _ID | {"record"}]
    return found


_TOP = """\
# A skeleton from the names and types of columns; no row was read. Everything marked FILL IN is yours to say,
# from the study's protocol or the literature, never from these data: the noise rests on it; it is published.
# What is marked as guessed was guessed from the words of names alone: confirm or correct it.

dataset = "FILL IN"          # the population: a ledger adds up what its people have paid
unit = "FILL IN"             # what one person is called, as "patient"
horizon = 0                  # FILL IN: most steps of an episode
episodes_per_user = 1        # most episodes of one person
{sizes}reward = {{ low = 0.0, high = 0.0 }}   # FILL IN: the range of the reward of one step
# reward = {{ outcomes = {{ home = 1.0 }} }}  # instead, where only ends pay: no other rewards, and less noise
# return_bound = 1.0         # what a whole episode can earn, if that is less than all steps
# stationary = true          # if the world is the same at every step
"""
_SOURCES = """
[provenance]                 # of each: "protocol", "literature", "other data", or "this data", which leaks
states = "FILL IN"
actions = "FILL IN"
horizon = "FILL IN"
episodes_per_user = "FILL IN"
reward = "FILL IN"
# terminal = "FILL IN"       # of ends, and so of stationary: where they are declared
features = "protocol"        # one-hot, nothing to say

# [declared]                 # for the data protection officer's page; what is left out is "not stated"
# controller = ""            # who answers for these data
# purpose = ""               # of the processing
# legal_basis = ""
# recipients = ""            # who gets what is released
"""


def _schema(names: Mapping[str, str]) -> str:
    """Return a schema template for columns of trajectories."""
    own = [f"{part}_column = {quoted(name)}" for part, name in names.items() if part != name]
    sizes = 'states = 0                   # FILL IN: how many, or ["healthy", "ill"]\n'
    sizes += "actions = 0                  # FILL IN\n"
    tail = "# terminal = [0]             # states in which episodes end\n"
    tail += "# censored = 0               # one of them: that of people whose outcome is not known\n"
    head = _TOP.format(sizes=sizes) + tail
    return head + ("\n".join(own) + "\n" if own else "") + _SOURCES


def _declaration(columns: Mapping[str, str], left: Sequence[str]) -> str:
    """Return a declaration template for raw records.

    ``left`` : columns to leave out, because they only number the rows.
    """
    users = _like("user", columns)
    episodes = _like("episode", columns, users)
    named = _like("time", columns, (*users, *episodes))
    typed = [name for name, kind in columns.items() if kind == "time" and name not in (*users, *episodes)]
    times = [name for name in named if name in typed]
    times += [name for name in (*typed, *named) if name not in times]
    ends = _like("end", columns, (*users, *episodes, *times))
    rewards = _like("reward", columns, (*users, *episodes, *times, *ends))
    taken = [*users[:1], *episodes[:1], *times[:1], *ends[:1], *rewards[:1]]
    rest = [name for name in columns if name not in taken]
    actions = _like("action", columns, taken)

    lines = [
        _TOP.format(sizes=""),
        "[prepare]                    # how records become states, actions and rewards: docs/prepare.md",
        *([f"# Left out, since they number rows: {', '.join(left)}"] if left else []),
        f"user = {_guess(users)}{_mark(users)}",
        f"{'' if episodes else '# '}episode = {_guess(episodes)}{_mark(episodes)}",
        f"time = {{ column = {_guess(times)} }}{_mark(times) or '   #'}; format, zone, numbers",
        'step = "FILL IN"             # as "4 hours"; left out: every row is a step',
        '# decision = "1 hour"        # with before = "action": the limit in steps without an action',
        'long = "refuse"              # episodes of more than `horizon` steps: "refuse", "cut", "end"',
        "",
        "# One table for each column that states, actions or rewards are made of; delete the others.",
    ]
    used: dict[str, str] = {}
    for name in rest:
        value = _name(name, used)
        used[value] = name
        lines += _value_lines(value, name, columns[name])
    made = [value for value, name in used.items() if name not in actions]
    lines += [
        "[prepare.states]             # or rules, or a public codebook",
        f"product = {json.dumps(made)}   # FILL IN: those that describe the {{unit}}".replace(
            "{unit}", "person"
        ),
        "",
        "[prepare.actions]",
        f"product = {json.dumps([value for value, name in used.items() if name in actions])}   # FILL IN",
        "",
        "[prepare.end]                # the outcome of an episode",
        f"column = {_guess(ends)}{_mark(ends)}",
        'states = { "FILL IN" = "FILL IN" }   # text of the file = label of a terminal state',
        '# censored = ["transferred", ""]      # texts of people whose outcome is not known; "": none',
        "",
        "[prepare.reward]",
        f"value = {quoted('FILL IN')}             # one of the values, or",
        'on = { "FILL IN" = 0.0 }     # the reward on arrival in a state; of ends alone: a rule, less noise',
    ]
    if rewards:
        lines.append(f"# perhaps of the column {rewards[0]}")
    return "\n".join(lines) + "\n" + _SOURCES


def _guess(found: Sequence[str]) -> str:
    return quoted(found[0]) if found else '"FILL IN"'


def _mark(found: Sequence[str]) -> str:
    others = f"; or {', '.join(found[1:4])}?" if len(found) > 1 else ""
    return f"   # guessed: confirm{others}" if found else ""


def _value_lines(value: str, column: str, kind: str) -> list[str]:
    return [
        f"[prepare.values.{value}]     # {kind}",
        f"column = {quoted(column)}",
        'within = "FILL IN"           # of several in one step: last, first, mean, min, max, sum, count',
        '# range = [0, 0]             # what is possible; outside = "missing" or "refuse"',
        '# before = "action"          # only readings before the first action of a step; needs decision',
        "# carry = 0                  # steps for which a value stands in for missing ones",
        'missing = "refuse"           # or "category", or { value = 0 }',
        '# cuts = [0]                 # public cut points, or: categories = ["a", "b"]',
        "",
    ]


def _name(column: str, used: Mapping[str, str]) -> str:
    """Return a name for the value in ``column``. It is not in ``used`` and has only a-z, digits and _."""
    plain = re.sub(r"\W+", "_", column, flags=re.ASCII).strip("_").lower() or "value"
    plain = f"v_{plain}" if plain[0].isdigit() or plain in ("and", "or", "not", "missing") else plain
    name, number = plain, 2
    while name in used:
        name, number = f"{plain}_{number}", number + 1
    return name
