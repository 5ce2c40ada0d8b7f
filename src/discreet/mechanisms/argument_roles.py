"""Check that learner, privatizer and other parts of a run were passed in the right arguments."""

from __future__ import annotations

from typing import Any, Literal

from discreet.core import checks

Role = Literal["learner", "offline learner", "privatizer"]

# Methods that an argument of this role must have. No other role has the first method of a role.
_CALLS: dict[Role, tuple[str, ...]] = {
    "learner": ("plan", "schedule", "query", "begin"),
    "offline learner": ("learn", "schedule", "query"),
    "privatizer": ("mechanism", "start"),
}
_SUCH: dict[Role, str] = {
    "learner": "discreet.DPUCBVI()",
    "offline learner": "discreet.DPAPVI()",
    "privatizer": "discreet.Central(epsilon=1.0)",
}


def check_role(name: str, value: Any, role: Role) -> None:
    """Raise ``ValueError`` unless the value has the methods of its role.

    name : name of the argument, for the error message. value : argument of the caller. role : role that the
        argument must have. If the value fits another role, the message names that role, because users easily
        swap learner and privatizer.
    """
    if not isinstance(value, type) and all(hasattr(value, call) for call in _CALLS[role]):
        return
    article = "an" if role[0] in "aeio" else "a"
    wanted = f"must be {article} {role}, such as {_SUCH[role]}"
    raise ValueError(f"{name} = {checks.said(value)}: {wanted}{_what_it_is(value, role)}")


def _what_it_is(value: Any, role: Role) -> str:
    if isinstance(value, type):
        return f"; this is the class itself: call it, {value.__name__}(...)" if _has(value, role) else ""
    others = [other for other in _CALLS if other != role and _has(value, other)]
    if not others:
        return ""
    article = "an" if others[0][0] in "aeio" else "a"
    hint = "are learner and privatizer swapped?" if "privatizer" in (role, others[0]) else ""
    if not hint:
        data = "users who arrive (simulate)" if others[0] == "learner" else "offline data (learn_offline)"
        hint = f"it learns from {data}"
    return f"; this is {article} {others[0]}: {hint}"


def _has(value: Any, role: Role) -> bool:
    return all(hasattr(value, call) for call in _CALLS[role])
