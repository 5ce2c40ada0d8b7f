"""OpenAPI descriptions of all addresses: request bodies, answers, and examples for the study."""

from __future__ import annotations

from typing import Any

from discreet.device.feature_map import FeatureMap
from discreet.device.http_client import SERVICE
from discreet.service.returning_users import MOST_LETTERS
from discreet.service.study_config import Study

__all__ = ["SUMMARY", "TICKET", "Texts", "declare_operator", "first_record", "show_example"]

TICKET = "AAAAAAAAAAAAAAAAAAAAAA"  # ticket in the examples

SUMMARY = (
    "A policy that improves while people use it, under a stated privacy guarantee. Take a place with a "
    "one-time ticket, follow the plan's policy, and send one message. A rejected request gets a `reason` and "
    "`words`, which do not repeat the content of the request."
)
_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_OURS = {"const": SERVICE}
_REFUSED = {
    "type": "object",
    "required": ["reason", "words", "service"],
    "properties": {
        "reason": _TEXT, "words": _TEXT, "service": _OURS,
        "release": {"type": ["integer", "null"]},  # only with the reason "again"
    },
    "additionalProperties": False,
}  # fmt: skip


def _object(required: tuple[str, ...] | None = None, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def _answer(words: str, schema: Any, example: Any = None, kind: str = "application/json") -> dict[str, Any]:
    content: dict[str, Any] = {"schema": schema}
    if example is not None:
        content["example"] = example
    return {"description": words, "content": {kind: content}}


def _refusals(*codes: int) -> dict[int | str, Any]:
    words = {
        400: "The request has a wrong form.",
        401: "An operator's token, or the shuffler's signature, is missing or wrong.",
        403: "No such ticket, a message for another study, or a person who cannot take part again yet.",
        404: "Not found.",
        408: "The request did not arrive in time.",
        409: "Full, spent, sent with another ticket, or without a place.",
        410: "The plan, the place or the study is over.",
        413: "Too large.",
        503: "The result of the request is not known: send it again.",
    }
    return {code: _answer(words[code], _REFUSED) for code in codes}


def _body(schema: Any, examples: dict[str, Any]) -> dict[str, Any]:
    shown = {name: {"value": value} for name, value in examples.items()}
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema, "examples": shown}},
        }
    }


def declare_operator(description: dict[str, Any]) -> None:
    """Declare the operator's bearer token in ``description``, an OpenAPI description."""
    schemes = description.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["operator"] = {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `discreet serve --operator` (or `discreet shuffler --operator`).",
    }


def show_example(description: dict[str, Any], message: dict[str, Any]) -> None:
    """Replace the example messages in ``description``, an OpenAPI description, by ``message``."""
    body = description["paths"]["/messages"]["post"]["requestBody"]["content"]["application/json"]
    body["examples"] = {"one": {"value": message}, "many": {"value": {"messages": [message]}}}


class Texts:
    """Arguments for the decorators of the routes; each attribute is for one address."""

    def __init__(self, study: Study, local: bool) -> None:
        message, example = _message_form(study, local)
        self.plan: dict[str, Any] = _plan()
        self.places = _places(example["ticket"])
        self.messages = _messages(message, example)
        self.withdrawals = _withdrawals(example["ticket"])
        self.sums = _sums(study.identity)
        self.tickets = _tickets()
        self.operator = {verb: _operator(verb) for verb in ("pause", "resume", "extend", "revoke")}
        self.releases = _releases()
        self.statement = _statement()
        self.log = _log()
        self.keys = _keys()
        self.health = _health("State of the service and of releases")
        self.live = _health("The process answers")
        self.ready = _health("The database answers within a second, and a plan is published")
        self.metrics = _metrics()


_TICKET = {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[\\x20-\\x7e]+$"}
_SECONDS = {"type": "number", "description": "Until the place is over."}
_MANY = {"type": "array", "minItems": 1, "maxItems": 1000}


def _several() -> dict[str, Any]:
    """Return the JSON schema of an answer to several requests."""
    one = _object(("status",), status=_TEXT, plan=_NUMBER, seconds=_SECONDS, words=_TEXT)
    return _object(service=_OURS, results={"type": "array", "items": one})


def first_record(study: Study) -> list[Any]:
    """Return the states, or the context, of an example record."""
    if study.features is None:
        return [0] * (study.layout.horizon + 1)
    low = [limits[0] for limits in study.features.ranges.values()]
    return [low if study.features.form == "per_action" else [low] * study.features.actions]


def _context_schema(features: FeatureMap) -> dict[str, Any]:
    """Return the JSON schema of one context: a number in its range, or null, for each column."""
    columns = [
        {"type": ["number", "null"], "minimum": low, "maximum": high, "title": name}
        for name, (low, high) in features.ranges.items()
    ]
    size = len(columns)
    row = {"type": "array", "prefixItems": columns, "minItems": size, "maxItems": size}
    if features.form == "per_action":
        return row
    return {"type": "array", "items": row, "minItems": features.actions, "maxItems": features.actions}


def _message_form(study: Study, local: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON schema of a message, and an example message."""
    layout, (low, high) = study.layout, study.rewards
    if local:
        message = _object(ticket=_TICKET, message={"type": "string", "contentEncoding": "base64"})
        # example that is shown before a plan is open
        one: dict[str, Any] = {"ticket": TICKET, "message": "ZHNjcg=="}
    else:
        message = _object(
            ticket=_TICKET,
            plan={"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
            nonce={"type": "string", "pattern": "^[0-9a-fA-F]{32}$"},
            **(
                {"states": _list("integer", layout.horizon + 1, 0, layout.states - 1)}
                if study.features is None
                else {
                    "contexts": {
                        "type": "array",
                        "prefixItems": [_context_schema(study.features)],
                        "minItems": 1,
                        "maxItems": 1,
                    }
                }
            ),
            actions=_list("integer", layout.horizon, 0, layout.actions - 1),
            rewards=_list("number", layout.horizon, low, high),
        )
        first = [0] * layout.horizon
        if layout.mask is not None:
            first = [int(layout.mask[0].argmax())] * layout.horizon
        one = {
            "ticket": TICKET,
            "plan": 1,
            "nonce": "00112233445566778899aabbccddeeff",
            "states" if study.features is None else "contexts": first_record(study),
            "actions": first,
            "rewards": [low] * layout.horizon,
        }
    return message, one


def _plan() -> dict[str, Any]:
    return {
        "summary": "The plans that are open, signed; cacheable",
        "response_model": None,
        "responses": {
            200: _answer("The plans.", _object(content={"type": "object"}, key=_TEXT, signature=_TEXT)),
            304: {"description": "Not changed (If-None-Match)."},
        }
        | _refusals(503),
    }


def _places(ticket: str) -> dict[str, Any]:
    placed = _object(status={"const": "placed"}, plan=_NUMBER, seconds=_SECONDS, service=_OURS)
    return {
        "summary": "Take a place with a ticket, before you act",
        "status_code": 201,
        "response_model": None,
        "responses": {
            201: _answer("A place, or the result for each ticket.", {"anyOf": [placed, _several()]})
        }
        | _refusals(400, 403, 408, 409, 410, 413, 503),
        "openapi_extra": _body(
            {"anyOf": [_object(ticket=_TICKET), _object(tickets={**_MANY, "items": _TICKET})]},
            {"one": {"ticket": ticket}, "many": {"tickets": [ticket]}},
        ),
    }


def _messages(message: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    counted = _object(status={"const": "counted"}, plan=_NUMBER, service=_OURS)
    return {
        "summary": "Send one message; the same message sent again gets the same answer",
        "status_code": 202,
        "response_model": None,
        "responses": {
            202: _answer(
                "The message counts and is on the disk, or the result for each message.",
                {"anyOf": [counted, _several()]},
            )
        }
        | _refusals(400, 403, 408, 409, 410, 413, 503),
        "openapi_extra": _body(
            {"anyOf": [message, _object(messages={**_MANY, "items": message})]},
            {"one": example, "many": {"messages": [example]}},
        ),
    }


def _withdrawals(ticket: str) -> dict[str, Any]:
    content = _object(status={"const": "withdrawn"}, identity=_TEXT, ticket=_TEXT)
    receipt = _object(content=content, key=_TEXT, signature=_TEXT)
    return {
        "summary": "Withdraw a place or a message until its batch is complete",
        "status_code": 200,
        "response_model": None,
        "responses": {
            200: _answer(
                "No sum contains a message of this ticket, and none will. The receipt is signed.",
                _object(status={"const": "withdrawn"}, receipt=receipt, service=_OURS),
            )
        }
        | _refusals(400, 403, 408, 409, 410, 413, 503),
        "openapi_extra": _body(_object(ticket=_TICKET), {"one": {"ticket": ticket}}),
    }


def _sums(identity: str) -> dict[str, Any]:
    stored = _object(status={"const": "counted"}, turn=_NUMBER, service=_OURS)
    return {
        "summary": "Send the sum of a batch, signed by the shuffler; the same sum gets the same answer",
        "status_code": 202,
        "response_model": None,
        "responses": {
            202: _answer("The sum is on the disk.", stored)
        }
        | _refusals(400, 401, 408, 409, 410, 413),
        "openapi_extra": _body(
            _object(
                content=_object(
                    identity=_TEXT, turn=_NUMBER, form=_TEXT, users=_NUMBER, absent=_NUMBER,
                    counts={"anyOf": [{"type": "string", "contentEncoding": "base64"}, {"type": "null"}]},
                ),
                signature={"type": "string", "pattern": "^[0-9a-f]{128}$"},
            ),
            {
                "lost": {
                    "content": {
                        "identity": identity, "turn": 0, "form": "0" * 32, "users": 0, "absent": 1,
                        "counts": None,
                    },
                    "signature": "0" * 128,
                }
            },
        ),
    }  # fmt: skip


def _tickets() -> dict[str, Any]:
    issued = _object(tickets={"type": "array", "items": _TEXT}, service=_OURS)
    return {
        "summary": "New one-time tickets, for an operator's system",
        "status_code": 201,
        "response_model": None,
        "responses": {201: _answer("Tickets, shown once.", issued)} | _refusals(400, 401, 408, 413),
        "openapi_extra": {
            **_body(
                {
                    "anyOf": [
                        _object(count={"type": "integer", "minimum": 1, "maximum": 10_000}),
                        _object(
                            persons={
                                "type": "array", "minItems": 1, "maxItems": 10_000,
                                "items": {**_TEXT, "minLength": 1, "maxLength": MOST_LETTERS},
                            }
                        ),
                    ]
                },
                {"ten": {"count": 10}, "two persons": {"persons": ["p-0017", "p-0018"]}},
            ),
            "security": [{"operator": []}],
        },
    }  # fmt: skip


def _operator(verb: str) -> dict[str, Any]:
    """Return the description of a command of the operator."""
    summary = {
        "pause": "Give no new places; answers are accepted and deadlines stay",
        "resume": "Give places again",
        "extend": "Give all users more time to answer, also users with a place",
        "revoke": "Revoke an operator's token",
    }[verb]
    standing = _object(paused={"type": "boolean"}, answer_within={"type": "number"}, service=_OURS)
    tokens = _object(tokens={"type": "array", "items": _TEXT}, service=_OURS)
    asked = {
        "extend": _body(
            _object(answer_within={"type": "number", "exclusiveMinimum": 0}),
            {"day": {"answer_within": 86400}},
        ),
        "revoke": _body(_object(token=_TEXT), {"one": {"token": "0123456789abcdef"}}),
    }
    said = _answer("The tokens that are left.", tokens) if verb == "revoke" else _answer("Done.", standing)
    return {
        "summary": summary,
        "status_code": 200,
        "response_model": None,
        "responses": {200: said} | _refusals(400, 401, 408, 413, 503),
        "openapi_extra": {**asked.get(verb, _body(_object(), {"empty": {}})), "security": [{"operator": []}]},
    }


def _releases() -> dict[str, Any]:
    return {
        "summary": "Public content of a release; never changes",
        "response_model": None,
        "responses": {200: _answer("Noisy sums.", {"type": "object"})} | _refusals(404),
        "openapi_extra": {
            "parameters": [
                {
                    "name": "number",
                    "in": "path",
                    "required": True,
                    "schema": {"type": "integer", "minimum": 0},
                    "example": 0,
                }
            ]
        },
    }


def _statement() -> dict[str, Any]:
    return {
        "summary": "Guarantee, who sees what, and what noise does not hide; signed",
        "response_model": None,
        "responses": {200: _answer("The statement.", {"type": "object"})},
    }


def _log() -> dict[str, Any]:
    number = {"name": "from", "in": "query", "schema": {"type": "integer", "minimum": 0}, "example": 0}
    return {
        "summary": "Links of the published releases, versions, keys, acts of the operator; signed",
        "response_model": None,
        "responses": {200: _answer("The log.", {"type": "object"})} | _refusals(400),
        "openapi_extra": {"parameters": [number]},
    }


def _keys() -> dict[str, Any]:
    return {
        "summary": "All keys of the service, each signed by the one before",
        "response_model": None,
        "responses": {200: _answer("The keys.", {"type": "object"})},
    }


def _health(summary: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "response_model": None,
        "responses": {
            200: _answer("The service works.", {"type": "object"}),
            503: _answer("The service does not work.", {"type": "object"}),
        },
    }


def _metrics() -> dict[str, Any]:
    return {
        "summary": "Counters, for Prometheus",
        "response_model": None,
        "responses": {200: _answer("Counters.", _TEXT, kind="text/plain")} | _refusals(401),
    }


def _list(kind: str, count: int, low: float, high: float) -> dict[str, Any]:
    items = {"type": kind, "minimum": low, "maximum": high}
    return {"type": "array", "minItems": count, "maxItems": count, "items": items}
