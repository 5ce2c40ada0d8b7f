"""Advice for records that violate a declaration: what to declare or correct."""

from __future__ import annotations

import re

_THEN = "declare time.then, a column of numbers that orders rows of one time"
_NOTHING = 'declare those that mean an empty cell (empty = ["."])'
_REMEDIES = {
    r"^line with a wrong number": "quote cells that hold the delimiter; in R write with row.names = FALSE "
    "(write.table leaves out the name of that column)",
    r"^(user|episode) without a name": "fill in the cell, or take such rows out of the records",
    r"^(time|begin) that cannot be read": 'declare time.format for other stamps (as "%d.%m.%Y %H:%M"), '
    "time.zone where stamps name an offset, time.numbers for plain numbers (in their unit, perhaps "
    'milliseconds), or time.unreadable = "leave out"',
    r"^(time|begin) that exists twice": "clocks go back and repeat that hour: declare "
    'time.ambiguous = "earlier" or "later"',
    r"^(time|begin) that does not exist": "clocks skip that hour in the declared zone: correct the stamp, "
    'declare the zone that it is of (perhaps "UTC"), or time.unreadable = "leave out"',
    r": number that cannot be read": f'correct the cells, {_NOTHING}, or declare unreadable = "missing"',
    r"^end: unknown category": "add the text to prepare.end.states, or to censored where the outcome is "
    f'unknown, {_NOTHING}, or declare unreadable = "missing"',
    r": unknown category": f'add the text to categories, {_NOTHING}, or declare unreadable = "missing"',
    r": text of where, written otherwise": "add that spelling to where, which is compared as written (to the "
    "where of another value, if it is another thing)",
    r": outside of its range": 'correct range, or declare outside = "missing"',
    r": perhaps a code for nothing": 'declare empty = ["-9"] if such a number means an empty cell, otherwise '
    "the range of what is possible",
    r": missing$": 'declare missing = "category" or { value = ... }, or carry',
    r": two values in a step": "declare within: which of several values counts",
    r": two values in an episode": 'declare within = "last" or "first", or where, so that one row has it',
    r": two values at one time": f"declare ties; or {_THEN}",
    r"^two rows at one time": f"{_THEN}; or step, where several rows are one step",
    r"^row that is there twice": 'declare duplicates = "remove"',
    r"^row before its episode": 'declare before = "leave out", or another begin',
    r"^episode of which no row": "see which rows are left out, by time.unreadable or before",
    r"^episode without a begin": "fill in the column of begin; if one user has several spellings, declare "
    'names = "folded"',
    r"^episode without an outcome": "declare prepare.end.missing, the label of episodes without an outcome, "
    'or censored = [""] where it is unknown',
    r"^episode (that ends before|of one step)": "declare [prepare.end], the outcome in which such an episode "
    "ends, or a smaller horizon",
    r"^episode of more than": 'declare a larger horizon, or long = "cut" or "end"',
    r"^more than \d+ episodes": 'declare episodes_per_user, or contribute = "random"',
    r"^no rule for": "add a last rule without `when`, which holds always",
    r"^action that the mask": "add the pair to the mask, or correct the action",
    r"^reward outside": "declare a larger range of the reward (the noise grows with it)",
}


def remedy(reason: str) -> str:
    """Return the advice for offences with this reason, or "" if there is none."""
    return next((text for pattern, text in _REMEDIES.items() if re.search(pattern, reason)), "")
