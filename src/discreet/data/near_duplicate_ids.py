"""Detection of different user names that may denote the same user.

Every mechanism treats each name as one user. A user who is in a file as ``17`` and as ``17.0`` counts as two
users, so the privacy loss of that user is bounded by two times the stated epsilon. This module has two
functions for such names:

:func:`folded`
    Gives the same text for names that differ only in notation or character encoding. Spaces at the ends,
    doubled spaces, case, and leading zeros of numbers do not matter. Invisible characters are ignored
    (zero-width characters, soft hyphens, marks of writing direction, byte order marks, NUL). Different forms
    of the same character are equal: full-width forms, combined and separate accents, digits of other scripts,
    dashes, and quotation marks. Whole numbers are equal to their floating-point notations (``17.0``, ``17.``,
    ``+17``, ``1.7e1``, ``1e+05``). ``discreet prepare`` merges such names only if ``names = "folded"`` is
    declared.
:func:`alike`
    Also gives the same text for names with other differences:

    * separators between letters and digits (``A-17``, ``A17``, ``A 17``);
    * different separators (``1-17``, ``1/17``);
    * punctuation at the ends (``'17``);
    * ``1e5`` for ``100000``, and ``17,0`` or ``17.000`` for ``17``;
    * Greek or Cyrillic letters that look like Latin letters.

    Only the data owner knows whether two such names are the same user, so such names are never merged. They
    are counted, and a warning states the count but no names.

Some pairs are different under both functions: ``1-17`` and ``117``, ``-17`` and ``17``, ``1.1`` and ``1.10``.
In many data sets, such pairs denote different users.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from discreet.data import row_kernels as kernels

JOINT = "\x1f"
"""Separator between the parts of a name that is joined from several columns."""

_PLAIN = r"^[ -~]*$"  # ASCII without invisible characters
_NOT_PLAIN = r"  |^[0-9.+-]+[eE][0-9+-]+$"
_ZEROS = r"(^|[^0-9])0+([0-9])"
# whole numbers, except those like 17.000, whose point can separate thousands
_WHOLE = r"^(?:\+|(-?))(\d+)(?:\.(?:0|00|0000+)?)?$"
_POWER = re.compile(r"\+?(?:\d+\.\d*|\.\d+|\d+(?=e[+-]))e[+-]?\d{1,3}")
_BARE_POWER = re.compile(r"\d+e\d{1,3}")
_LARGEST_POWER = 40
# Characters without width that Unicode does not class as format characters: default ignorable code points.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_QUOTES = dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc\u2032", "'")
_LATIN = str.maketrans("авекмнорстухіјѕαβεηικμνορτυχ", "abekmhopctyxijsabehikmnoptyx")


def folded(names: Any) -> Any:
    """Return the normalized forms of an Arrow array of names, as large text.

    Names that certainly denote the same user have equal forms.
    """
    coded = names.cast(pa.large_string()).dictionary_encode()
    low = pc.utf8_lower(pc.utf8_trim_whitespace(coded.dictionary))
    plain = pc.and_(
        pc.match_substring_regex(low, _PLAIN), pc.invert(pc.match_substring_regex(low, _NOT_PLAIN))
    )
    low = pc.replace_substring_regex(low, _WHOLE, r"\1\2")
    low = pc.replace_substring_regex(low, _ZEROS, r"\1\2")
    if not pc.all(plain).as_py():
        other = pc.invert(plain)
        words = [_fold(one) for one in coded.dictionary.filter(other).to_pylist()]
        low = pc.replace_with_mask(low, other, pa.array(words, pa.large_string()))
    return low.take(coded.indices)


def _fold(name: str) -> str:
    """Return the normalized form of one name, the same as :func:`folded` for an array."""
    if name.isascii() and name.isprintable():
        text = " ".join(name.lower().split())
    else:
        text = "".join(map(_seen, unicodedata.normalize("NFD", name)))
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        text = " ".join("".join(map(_usual, text)).split())
    if _POWER.fullmatch(text):
        text = _written_out(text)
    return re.sub(_ZEROS, r"\1\2", re.sub(_WHOLE, r"\1\2", text))


@lru_cache(4096)
def _seen(letter: str) -> str:
    """Return "" for an invisible character that is not a space, and any other character unchanged."""
    kind = unicodedata.category(letter)
    unseen = kind == "Cf" or (kind == "Cc" and not letter.isspace()) or _UNSEEN.match(letter)
    return "" if unseen else letter


@lru_cache(4096)
def _usual(letter: str) -> str:
    """Return the ASCII form of a digit, dash or single quotation mark, and any other character unchanged."""
    kind = unicodedata.category(letter)
    if kind == "Nd":
        return str(unicodedata.decimal(letter))
    if kind == "Pd" or letter == "\u2212":
        return "-"
    return _QUOTES.get(letter, letter)


def _written_out(power: str) -> str:
    """Write out a whole number in scientific notation as digits; return any other text unchanged."""
    number = Decimal(power)
    if number == number.to_integral_value() and number.adjusted() <= _LARGEST_POWER:
        return str(int(number))
    return power


def alike(name: str) -> str:
    """Return a normalized form of a name. Names that look similar have equal forms."""
    return JOINT.join(_likeness(_fold(part)) for part in name.split(JOINT))


def _likeness(text: str) -> str:
    """Return the letters and digits of a folded name without other characters.

    A "-" before a leading number is kept. A "-" also replaces a separator between two numbers or two words.
    """
    text = text.translate(_LATIN)
    if _BARE_POWER.fullmatch(text):
        text = _written_out(text)
    if text.count(".") + text.count(",") == 1:
        text = re.sub(r"(?<=\d)[.,]0+$", "", text)
    if text.isascii():
        parts = re.findall(r"[0-9]+|[a-z]+", text)
    else:
        parts = ["".join(run) for kind, run in groupby(text, _kind) if kind]
    out, last = ["-"] if re.match(r"-[0-9]", text) else [], None
    for part in parts:
        number = "0" <= part[0] <= "9"
        if number is last:
            out.append("-")
        out.append(part)
        last = number
    return text if last is None else "".join(out)


@lru_cache(4096)
def _kind(letter: str) -> str:
    """Return "digit", "letter", or "" for a space, punctuation mark or symbol."""
    if letter in "0123456789":
        return "digit"
    return "" if unicodedata.category(letter)[0] in "PSZ" or letter.isspace() else "letter"


def hashed(keys: Any) -> NDArray[np.uint64]:
    """Return (n,) hashes of an Arrow array of keys. Integers are their own hashes.

    Equal keys have equal hashes.
    """
    if pa.types.is_integer(keys.type):
        return np.asarray(keys.to_numpy(zero_copy_only=False)).view(np.uint64)
    out = np.empty(len(keys), np.uint64)
    kernels.hash_texts(*_letters(keys.cast(pa.large_string())), out)
    return out


def _letters(texts: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the (n + 1,) byte offsets at which the n strings start and end, and the bytes of all strings."""
    if not len(texts):  # an empty Arrow array can have no buffers
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    _, offsets, letters = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return ends, np.empty(0, np.uint8) if letters is None else np.frombuffer(letters, np.uint8)


def distinct(values: NDArray[np.uint64]) -> int:
    """Count the distinct values by sorting, which is many times faster than :func:`numpy.unique`."""
    ordered = np.sort(values)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + min(1, ordered.size)


@dataclass(frozen=True)
class Folded:
    """Hashes of the :func:`alike` forms of names. ``differ`` is True if a form differs from its name."""

    hashes: NDArray[np.uint64]
    differ: bool


class Alike:
    """Counter of names that look like another name. It stores no names, only a hash of 8 bytes per user."""

    def __init__(self) -> None:
        self._hashes: list[NDArray[np.uint64]] = []
        self._differ = False

    @staticmethod
    def looked_at(names: Any) -> Folded:
        """Return the hashes of an Arrow array of names. This method can be called from any thread."""
        if pa.types.is_integer(names.type) or not len(names):  # numbers have no variants
            return Folded(np.empty(0, np.uint64), False)
        texts = names.cast(pa.large_string())
        ends, letters = _letters(texts)
        out, odd = np.empty(len(texts), np.uint64), np.zeros(len(texts), np.uint8)
        differ = bool(kernels.hash_alike(ends, letters, out, odd))
        at = np.flatnonzero(odd)
        if len(at):
            others = texts.take(pa.array(at))
            found = others.to_pylist()
            if any(JOINT in name for name in found):
                words = [alike(name) for name in found]
            else:
                words = [_likeness(name) for name in folded(others).to_pylist()]
            out[at] = hashed(pa.array(words, pa.large_string()))
            differ |= words != found
        return Folded(out, differ)

    def add(self, names: Any) -> None:
        """Add an Arrow array of names. Add each user exactly once over all calls."""
        self.take(self.looked_at(names))

    def take(self, names: Folded) -> None:
        """Add names that :meth:`looked_at` has hashed."""
        self._hashes.append(names.hashes)
        self._differ |= names.differ

    @property
    def count(self) -> int:
        """Number of users whose name looks like the name of an earlier user."""
        if not self._differ:
            return 0
        every = np.concatenate(self._hashes)
        return every.size - distinct(every)

    def warn(self, unit: str, column: str, remedy: str = "write names in one way") -> None:
        """Emit a warning if the name of a user looks like the name of another user.

        - unit : word for one user.
        - column : name of the column.
        - remedy : advice in the warning.
        """
        count = self.count
        if count:
            warnings.warn(
                f"{count:,} of the names in {column!r} look like another one: they differ only by spaces, "
                "case, zeros (07, 7.0), separators, or characters that look the same or cannot be seen. "
                f"If they are one {unit}, that {unit} counts as two and is protected half as well; {remedy}",
                UserWarning,
                stacklevel=2,
            )
