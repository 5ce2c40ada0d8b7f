"""The description of the interface: the operator's token, and one message as its example."""

from typing import Any

from discreet.service.openapi import declare_operator, show_example


def test_the_operators_token_is_declared_beside_what_is_there() -> None:
    told: dict[str, Any] = {"components": {"schemas": {"a": 1}}}
    declare_operator(told)
    assert told["components"]["schemas"] == {"a": 1}
    assert told["components"]["securitySchemes"]["operator"]["scheme"] == "bearer"


def test_examples_are_the_message_alone_and_in_a_list() -> None:
    content: dict[str, Any] = {"examples": {"old": {}}}
    told = {"paths": {"/messages": {"post": {"requestBody": {"content": {"application/json": content}}}}}}
    show_example(told, {"ticket": "t"})
    assert content["examples"] == {
        "one": {"value": {"ticket": "t"}},
        "many": {"value": {"messages": [{"ticket": "t"}]}},
    }
