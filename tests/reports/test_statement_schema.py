"""The schema of statements is a JSON Schema document."""

import json

import pytest

from discreet.reports.statement_schema import JSON_SCHEMA, violations

pytestmark = pytest.mark.usefixtures("figures_are_sketched")


def test_the_schema_document_is_json_schema():
    assert json.loads(json.dumps(JSON_SCHEMA)) == JSON_SCHEMA
    optional = ["second_group"]
    assert JSON_SCHEMA["required"] == [name for name in JSON_SCHEMA["properties"] if name not in optional]
    assert list(violations([], {"type": "object"})) == ["$ = []: must be object"]
    assert list(violations(True, {"type": "integer"}))
    assert list(violations("a\n", {"type": "string", "pattern": "^a$"}))
    assert list(violations(3, {"maximum": 2}))
    assert not list(violations(None, {"anyOf": [{"type": "null"}, {"type": "object"}]}))
    assert list(violations(1, {"anyOf": [{"type": "null"}, {"type": "object"}]}))
