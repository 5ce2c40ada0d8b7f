"""Mechanism and guarantee of a study, which are fixed at its start, and record of the library versions that
served it.

The first start stores the mechanism (scales, decay, schedule) and the stated guarantee as JSON in the table
``program``. A later version of the library builds the mechanism from this JSON and does not calibrate again.
Otherwise, a change of the calibration would change the noise of a running study. The later version computes
the loss of the stored mechanism with its own accounting. If the loss is at most the stated one, the study
continues with the stated guarantee. Otherwise, the service does not start. The version that stated the
guarantee must compute the same guarantee again. If it does not, the database was changed, and the service
does not start.

The learner reads only releases, so its plans are post-processing. Another learner cannot violate the
guarantee. However, it cannot continue from the state of a different learner. Therefore a version whose
learner makes other plans from the stored releases is refused until the operator accepts it (``discreet serve
--accept-learner``). The accepted learner then reads all stored releases. The statement lists every version
that served the study.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.core import checks
from discreet.core.guarantee import Guarantee
from discreet.mechanisms.saved_state import state_file as saved_state
from discreet.mechanisms.saved_state.save import CLASSES
from discreet.names import __version__

if TYPE_CHECKING:
    from discreet.service.database import Store
    from discreet.service.study_config import Study

__all__ = [
    "check_learner", "first_program", "frozen", "mechanism_of", "mechanism_text", "note_program",
    "program_of", "same_program",
]  # fmt: skip

_TOLERANCE = 1e-9  # relative tolerance; another machine can round the loss differently
_LAYOUT = saved_state.FileLayout(b"\x89discreet-shown\n", 1, "a mechanism")
_PRELUDE = 28  # number of bytes before the header of a file
_NUMBERS = ("epsilon", "rho", "mu", "delta")
_WORDS = (
    "trust", "episodes", "users_public", "randomness", "epsilon_nominal", "unit", "neighbours", "statement",
    "reason",
)  # fmt: skip


def mechanism_text(mechanism: Any) -> str:
    """Return a mechanism as JSON text. Every number is preserved exactly."""
    file = io.BytesIO()
    saved_state.write_content(file, "0" * 32, {"mechanism": mechanism}, CLASSES, _LAYOUT)
    content = file.getvalue()
    size = int.from_bytes(content[20:_PRELUDE], "little")
    header, at = json.loads(content[_PRELUDE : _PRELUDE + size]), _PRELUDE + size
    arrays = []
    for dtype, shape, writeable in header["arrays"]:
        kind, count = np.dtype(dtype), int(np.prod(shape))
        numbers = np.frombuffer(content, kind, count, at).tolist()
        arrays.append({"dtype": dtype, "shape": shape, "writeable": writeable, "numbers": numbers})
        at += count * kind.itemsize
    times = [int(n) for n in mechanism.schedule.release_times]
    table = {"library": header["library"], "mechanism": header["values"]["mechanism"], "arrays": arrays}
    return json.dumps({**table, "release_times": times}, separators=(",", ":"))


def mechanism_of(text: str) -> Any:
    """Return the mechanism in the result of :func:`mechanism_text`.

    Raises ``ValueError`` if the text is damaged, or was written by a version whose mechanisms or release
    times differ.
    """
    try:
        table = json.loads(text)
        kinds = [[one["dtype"], one["shape"], one["writeable"]] for one in table["arrays"]]
        numbers = [np.array(one["numbers"], one["dtype"]).tobytes() for one in table["arrays"]]
        header = {
            "id": "0" * 32, "library": table["library"], "values": {"mechanism": table["mechanism"]},
            "arrays": kinds,
        }  # fmt: skip
        written, times = json.dumps(header).encode(), table["release_times"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"mechanism: is damaged ({type(error).__name__})") from None
    magic = _LAYOUT.magic + _LAYOUT.version.to_bytes(4, "little") + len(written).to_bytes(8, "little")
    content = b"".join([magic, written, *numbers])
    content += hashlib.sha256(content).digest()
    file = io.BytesIO(content)
    found = saved_state.read_content(file, len(content), "mechanism", CLASSES, _LAYOUT)[1]["mechanism"]
    if [int(n) for n in found.schedule.release_times] != times:
        raise ValueError("mechanism: this version of the library computes other release times")
    return found


def program_of(study: Study) -> dict[str, Any]:
    """Return the row of the table ``program`` for this version of the library, without the turn."""
    learner = type(study.learner)
    return {
        "version": __version__,
        "learner": str(study.table.get("learner", {}).get("name", learner.__name__)),
        "learner_version": int(getattr(learner, "learner_version", 1)),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": _installed("numba"),
    }


def first_program(study: Study, mechanism: Any = None) -> dict[str, Any]:
    """Return the first row of the table ``program``, with mechanism and stated guarantee.

    mechanism : the mechanism; if None, the study's mechanism.
    """
    mechanism = mechanism or study.mechanism
    return {
        **program_of(study),
        "mechanism_json": mechanism_text(mechanism),
        "guarantee_json": json.dumps(mechanism.guarantee.to_dict(), allow_nan=False),
    }


def note_program(study: Study, store: Store, *, accept_learner: bool = False) -> None:
    """Store the versions that serve the study now, if they have changed.

    accept_learner : True if the operator accepts a learner that makes other plans than before.
    """
    own = program_of(study)
    if accept_learner or not same_program(own, store.programs()[-1]):
        check_learner(study, store, accept_learner=accept_learner)
        store.add_program(own, accepted=accept_learner)


def check_learner(study: Study, store: Store, *, accept_learner: bool = False) -> int:
    """Check the version of the learner, and return the turn at which a learner was last accepted, or -1.

    Raises ``ValueError`` if the version differs from the one that made the last plans, unless
    ``accept_learner`` is True.
    """
    own, programs = program_of(study), store.programs()
    last = programs[-1]["learner_version"]
    if own["learner_version"] != last and not accept_learner:
        raise ValueError(
            f"learner: version {own['learner_version']} of {own['learner']} cannot go on from the state of "
            f"version {last}: use the library of that version, or start once with --accept-learner, after "
            "which it learns again from all releases"
        )
    return max((int(one["at_turn"]) for one in programs if one["accepted"]), default=-1)


def same_program(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if two rows contain the same versions."""
    names = ("version", "learner", "learner_version", "python", "numpy", "numba")
    return all(one[name] == other[name] for name in names)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def frozen(study: Study, store: Store) -> Study:
    """Return the study with the mechanism and the stated guarantee of the database.

    Raises ``ValueError`` if the stored mechanism has a larger loss than the database states, or does not give
    the stated guarantee.
    """
    text, stated = store.frozen()
    if study.frozen_as == (text, stated):
        return study
    mechanism = mechanism_of(text)
    stated_guarantee = json.loads(stated)
    if not isinstance(stated_guarantee, dict) or not {*_NUMBERS} <= {*stated_guarantee}:
        raise ValueError(
            f"guarantee = {checks.said(stated_guarantee)}: must be a whole one, the database was changed"
        )
    strategy = getattr(mechanism, "strategy", None)  # None: a shuffler's mechanism
    own = tuple(getattr(strategy, name, 1) for name in ("participations", "separation"))
    if own != (study.participations, study.separation):
        raise ValueError(
            f"mechanism: has noise for {own[0]} participations, {own[1]} releases apart: the database was "
            "changed"
        )
    _check_stated(mechanism.guarantee, stated_guarantee, later=store.programs()[0]["version"] != __version__)
    found = object.__new__(type(study))
    put = found.__dict__.update
    put(study.__dict__)
    put(mechanism=mechanism, schedule=mechanism.schedule, stated=stated_guarantee, frozen_as=(text, stated))
    found.__dict__.pop("guarantee", None)
    return found


def _check_stated(own: Guarantee, stated: Mapping[str, Any], *, later: bool) -> None:
    """Compare the stated guarantee of a database with the guarantee that its mechanism gives.

    own : guarantee of the stored mechanism, recomputed.
    later : True if another version of the library stated the guarantee. This version can then compute a
        smaller loss. The study continues with the stated loss, which is at most the requested one.

    Raises ``ValueError`` if the stated guarantee differs, or if the recomputed loss is larger.
    """
    for name in _NUMBERS:
        value, told = getattr(own, name), stated.get(name)
        if value is None or told is None:
            good = value is told or (later and name in ("rho", "mu") and told is None)
            most: float | None = None
        else:
            checks.real(name, told, 0.0)
            asked = {"epsilon": own.epsilon_nominal, "delta": value}.get(name)
            most = max(value, math.inf if asked is None else asked) if later else value
            if value > told * (1.0 + _TOLERANCE):
                raise ValueError(
                    f"{name} = {value!r}: another guarantee than the stated one, {told!r}: this version of "
                    "the library finds that the study's noise loses more; nothing more is released"
                )
            good = told <= most * (1.0 + _TOLERANCE)
        if not good:
            raise ValueError(
                f"{name} = {told!r}: is the guarantee that the database states, and its mechanism gives "
                f"{value!r}: the database was changed; put the newest one back"
            )
    words = own.to_dict()
    for name in _WORDS:
        if not later and stated.get(name) != words[name]:
            raise ValueError(
                f"{name} = {checks.said(stated.get(name))}: is what the database states, and its mechanism "
                f"gives {checks.said(words[name])}: the database was changed; put the newest one back"
            )
