# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Label and field selectors."""

from __future__ import annotations

import re
import typing as t

from .resources import Resource
from .status import bad_request

Json = dict[str, t.Any]
Test = t.Callable[[Json], bool]

_SETS = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s*(?P<op>==|!=|=)\s*(?P<value>[^\s!=,()]*)\s*$")
_COMPARE = re.compile(r"^\s*(?P<key>[^\s!=,()<>]+)\s*(?P<op>[<>])\s*(?P<value>-?\d+)\s*$")
_EXISTS = re.compile(r"^\s*(?P<not>!?)\s*(?P<key>[^\s!=,()]+)\s*$")


def requirement(key: str, op: str, values: t.Sequence[str]) -> t.Callable[[t.Mapping[str, str]], bool]:
    """One requirement on a label map; ``op`` is In, NotIn, Exists, DoesNotExist, Gt or Lt (as in node affinity)."""
    chosen = frozenset(values)
    if op == "In":
        return lambda labels: key in labels and labels[key] in chosen
    if op == "NotIn":
        return lambda labels: labels.get(key) not in chosen if key in labels else True
    if op == "Exists":
        return lambda labels: key in labels
    if op == "DoesNotExist":
        return lambda labels: key not in labels
    if op in ("Gt", "Lt") and len(values) == 1:
        limit = int(values[0])

        def compare(labels: t.Mapping[str, str]) -> bool:
            try:
                number = int(labels[key])
            except (KeyError, ValueError):
                return False
            return number > limit if op == "Gt" else number < limit

        return compare
    raise ValueError(f"{op!r} is not a valid label selector operator")


def term_selects(term: Json, node: Json, labels: t.Mapping[str, str]) -> bool:
    """Whether a NodeSelectorTerm selects the node, whose labels are ``labels``. An empty term selects none, as in Kubernetes."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    named = {"metadata.name": node["metadata"]["name"]}
    if not expressions and not fields:
        return False
    return all(requirement(rule["key"], rule["operator"], rule.get("values") or [])(labels) for rule in expressions) and all(
        requirement(rule["key"], rule["operator"], rule.get("values") or [])(named) for rule in fields
    )


def _label_requirement(text: str) -> t.Callable[[t.Mapping[str, str]], bool]:
    if found := _SETS.match(text):
        values = [value.strip() for value in found["values"].split(",")]
        return requirement(found["key"], "In" if found["op"] == "in" else "NotIn", values)
    if found := _COMPARE.match(text):
        return requirement(found["key"], "Gt" if found["op"] == ">" else "Lt", [found["value"]])
    if found := _EQUAL.match(text):
        return requirement(found["key"], "NotIn" if found["op"] == "!=" else "In", [found["value"]])
    if found := _EXISTS.match(text):
        return requirement(found["key"], "DoesNotExist" if found["not"] else "Exists", [])
    raise bad_request(f"unable to parse requirement: {text!r}")


def labels_test(text: str) -> Test | None:
    """The test of a label selector as written in a query; None if it selects all."""
    if not text.strip():
        return None
    wanted = [_label_requirement(part) for part in re.split(r",(?![^(]*\))", text)]

    def test(obj: Json) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(fits(labels) for fits in wanted)

    return test


def selector_test(selector: Json | None) -> t.Callable[[t.Mapping[str, str]], bool]:
    """The test of a LabelSelector document on a label map: None selects nothing, an empty one all."""
    if selector is None:
        return lambda labels: False
    wanted = [requirement(key, "In", [value]) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        wanted.append(requirement(expression["key"], expression["operator"], expression.get("values") or []))
    return lambda labels: all(fits(labels) for fits in wanted)


def _field(obj: Json, path: str) -> str:
    value: t.Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if path == "source" and isinstance(value, dict):
        value = value.get("component")
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(value)


class Fields:
    """A parsed field selector. ``exact`` holds the values demanded by equality."""

    def __init__(self, resource: Resource, text: str) -> None:
        self.exact: dict[str, str] = {}
        self._rules: list[tuple[str, bool, str]] = []
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            found = re.match(r"^(?P<key>[^=!]+)(?P<op>==|!=|=)(?P<value>.*)$", part)
            if found is None:
                raise bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
            key = found["key"].strip()
            if key not in ("metadata.name", "metadata.namespace") and key not in resource.fields:
                if resource.fields:
                    raise bad_request(f"field label not supported: {key}")
                known = '"metadata.name", "metadata.namespace"'
                raise bad_request(f'"{key}" is not a known field selector: only {known}')
            equal = found["op"] != "!="
            self._rules.append((key, equal, found["value"]))
            if equal:
                self.exact[key] = found["value"]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def __call__(self, obj: Json) -> bool:
        return all((_field(obj, key) == value) == equal for key, equal, value in self._rules)
