"""Compiled functions that check raw rows, assemble episodes, and hash names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.data.sources import MISSING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

KINDS = 12
EMPTY, STATE, ACTION, REWARD, INADMISSIBLE, STEP, TWICE, GAP, BROKEN, SHORT, LEFT, MANY = range(KINDS)


@inlined
def _note(kind: int, number: int, found: Ints, first: Ints) -> None:
    found[kind] += 1
    if first[kind] < 0 or number < first[kind]:
        first[kind] = number


@kernel
def check_rows(
    step: Ints, state: Ints, action: Ints, reward: Floats, after: Ints, number: Ints,
    keyless: Bytes, new_user: Bytes, new_episode: Bytes,
    row_index: Ints, horizon: int, low: float, high: float, absorbing: Bytes, terminal: int,
    cut_allowed: bool, read_rewards: bool, most: int, found: Ints, first: Ints,
) -> None:  # fmt: skip
    """Check rows against the schema.

    The rows must be all rows of some users, sorted by user, episode, step and row number. For each kind of
    error, ``found[kind]`` is increased by the number of rows with this error. ``first[kind]`` is the smallest
    row number with this error so far, or -1 if there is none. A row whose step is out of range or repeated
    counts as an error of that kind. The check that steps are consecutive ignores such rows.
    """
    states, actions = row_index.shape
    n, episodes, before = step.shape[0], 0, -1
    for i in range(n):
        s, a, z, t = state[i], action[i], after[i], step[i]
        if new_user[i]:
            episodes = 0
        if new_episode[i]:
            episodes += 1
            before = -1
            if episodes > most:
                _note(MANY, number[i], found, first)
        last = i + 1 == n or new_episode[i + 1] != 0
        ended = z == MISSING and last and terminal >= 0
        if keyless[i] or s == MISSING or a == MISSING or t == MISSING or (z == MISSING and not ended):
            _note(EMPTY, number[i], found, first)
        good_s, good_z, good_a = 0 <= s < states, 0 <= z < states, 0 <= a < actions
        if (not good_s and s != MISSING) or (not good_z and z != MISSING):
            _note(STATE, number[i], found, first)
        if not good_a and a != MISSING:
            _note(ACTION, number[i], found, first)
        if good_s and good_a and row_index[s, a] < 0:
            _note(INADMISSIBLE, number[i], found, first)
        if read_rewards and not low <= reward[i] <= high:  # also true for NaN
            _note(REWARD, number[i], found, first)
        if good_s and absorbing[s] and z != s and z != MISSING:
            _note(LEFT, number[i], found, first)
        if t != MISSING:
            if t < 0 or t >= horizon:
                _note(STEP, number[i], found, first)
            elif before >= 0 and t == step[before]:
                _note(TWICE, number[i], found, first)
            else:
                if t != (0 if before < 0 else step[before] + 1):
                    _note(GAP, number[i], found, first)
                elif before >= 0 and s != after[before] and good_s and 0 <= after[before] < states:
                    _note(BROKEN, number[i], found, first)
                before = i
        if last and before >= 0 and step[before] + 1 < horizon:
            z = after[before]
            if terminal < 0 or (0 <= z < states and absorbing[z] == 0 and not cut_allowed):
                _note(SHORT, number[before], found, first)


@kernel
def assemble(
    state: Ints, action: Ints, reward: Floats, after: Ints, new_episode: Bytes, keep: Bytes,
    low: float, high: float, absorbing: Bytes, terminal: int, idle: Ints, known: Floats, arrival: Floats,
    states: Ints, actions: Ints, rewards: Floats,
) -> None:  # fmt: skip
    """Assemble checked rows into episodes of H steps. Episodes with ``keep`` = 0 are skipped.

    Fills ``states (n, H + 1)``, ``actions (n, H)`` and ``rewards (n, H)``. Rewards are scaled to [0, 1].

    Parameters
    ----------
    idle : (S,) action that fills the steps after a terminal state is reached.
    known : (1 or H, S, A) known rewards, or (0, S, A) if rewards are read from the rows.
    arrival : (S,) rewards for reaching a terminal state, or (0,) if there are none. Each is paid once. They
        replace the rewards of the rows and the known rewards.
    """
    horizon, pays = actions.shape[1], (0.0 - low) / (high - low)
    episode, out, i, n = 0, 0, 0, state.shape[0]
    slots = known.shape[0]
    while i < n:
        h = 0
        while True:
            if keep[episode]:
                s, a = state[i], action[i]
                states[out, h], actions[out, h] = s, a
                if slots > 0:
                    rewards[out, h] = known[h if slots > 1 else 0, s, a]
                else:
                    rewards[out, h] = (reward[i] - low) / (high - low)
            h += 1
            i += 1
            if i == n or new_episode[i]:
                break
        if keep[episode]:
            end = after[i - 1]
            if end == MISSING or (h < horizon and not absorbing[end]):
                end = terminal
            states[out, h] = end
            for t in range(h, horizon):
                actions[out, t] = idle[end]
                rewards[out, t] = known[t if slots > 1 else 0, end, idle[end]] if slots > 0 else pays
                states[out, t + 1] = end
            if arrival.shape[0] > 0:
                for t in range(horizon):
                    earned = 0.0 if absorbing[states[out, t]] else arrival[states[out, t + 1]]
                    rewards[out, t] = (earned - low) / (high - low)
            out += 1
        episode += 1


_FNV, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@inlined
def _mixed(fnv: np.uint64) -> np.uint64:
    """Apply the final mixing function of the generator splitmix64 to a 64-bit number."""
    mixed = (fnv ^ (fnv >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@kernel
def hash_texts(ends: Ints, letters: Bytes, out: NDArray[np.uint64]) -> None:
    """Write a 64-bit hash of each string letters[ends[i]:ends[i + 1]] to ``out[i]``.

    The hash is FNV-1a, followed by the final mixing function of splitmix64.
    """
    for i in range(out.shape[0]):
        fnv = _FNV
        for at in range(ends[i], ends[i + 1]):
            fnv = (fnv ^ np.uint64(letters[at])) * _FNV_PRIME
        out[i] = _mixed(fnv)


@inlined
def _is_space(letter: int) -> bool:
    return letter == 32 or 9 <= letter <= 13 or 28 <= letter <= 30


@inlined
def _is_digit(letter: int) -> bool:
    return 48 <= letter <= 57


@kernel
def hash_alike(ends: Ints, letters: Bytes, out: NDArray[np.uint64], odd: Bytes) -> bool:
    """Compute the forms that ``near_duplicate_ids.alike`` gives to ASCII names, and write their hashes.

    The hashes are those of :func:`hash_texts`. The names are read once and not copied. If this function does
    not support a name, ``odd[i]`` is set to 1, and ``out[i]`` has no meaning. Unsupported names contain
    non-ASCII characters, have no letter or digit, or are numbers with a point or an exponent. Returns True if
    the form of any supported name differs from the name.
    """
    changed = False
    for i in range(out.shape[0]):
        begin, end = ends[i], ends[i + 1]
        # kind of the last character: 1 for a digit, 2 for a letter; apart: separators since this character
        fnv, kind, apart, in_number = _FNV, 0, 0, False
        start, dash, strange, differs = True, False, False, False
        numeric, powers, points, tail = True, 0, 0, False
        for at in range(begin, end + 1):
            letter = np.int64(letters[at]) if at < end else np.int64(31)  # a separator ends the last part
            if letter >= 127 or (letter < 32 and letter != 31 and not _is_space(letter)):
                strange = True
                break
            if letter == 31:  # separator between the parts of a name from several columns
                if kind == 0 or tail or (numeric and (powers == 1 or points > 0)):
                    strange = True
                    break
                differs |= apart > 0
                if at < end:
                    fnv = (fnv ^ np.uint64(31)) * _FNV_PRIME
                kind, apart, in_number, start, dash = 0, 0, False, True, False
                numeric, powers, points, tail = True, 0, 0, False
                continue
            digit = _is_digit(letter)
            if digit or 65 <= letter <= 90 or 97 <= letter <= 122:
                if letter == 69 or letter == 101:
                    powers += 1
                elif not digit:
                    numeric = False
                tail &= letter == 48
                start = False
                if letter == 48 and not in_number and at + 1 < end and _is_digit(letters[at + 1]):
                    differs = True
                    continue
                own = 1 if digit else 2
                if apart > 0 and own == kind:
                    fnv = (fnv ^ np.uint64(45)) * _FNV_PRIME
                    differs |= apart > 1 or not dash
                elif apart > 0:
                    differs = True
                if 65 <= letter <= 90:
                    letter += 32
                    differs = True
                fnv = (fnv ^ np.uint64(letter)) * _FNV_PRIME
                kind, apart, in_number = own, 0, digit
                continue
            in_number = False
            if _is_space(letter):
                apart += 1
                dash = False
                continue
            if letter == 46 or letter == 44 or letter == 43:
                points += 1
                tail = letter != 43
            elif letter != 45:
                numeric, tail = False, False
            else:
                tail = False
            if start and letter == 45 and at + 1 < end and _is_digit(letters[at + 1]):
                fnv = (fnv ^ np.uint64(45)) * _FNV_PRIME  # the minus sign of a number
            else:
                apart += 1
                dash = letter == 45
            start = False
        odd[i] = strange
        changed |= differs and not strange
        out[i] = _mixed(fnv)
    return changed
