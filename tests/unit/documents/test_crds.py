# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CRDs that ship are made from the schemas, structural, and say the same as the reader of documents."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.documents import schemas
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document, DocumentOrigin
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import understand

from sandbox.kube import cel
from sandbox.kube.crd import broken, prune
from schemas import crd_forms, crds
from schemas.crd_rules import BOUNDS, DEFAULTS
from tests.fixtures.wrong_objects import GOOD, SERVICE, WRONG, Json, Wrong

ROOT = Path(__file__).resolve().parents[3]


def test_S3_10_the_shipped_crds_are_up_to_date() -> None:
    assert list(yaml.safe_load_all((ROOT / "schemas" / "crds.yaml").read_text())) == [*crds.definitions(), crds.claim_definition()]


def test_S0_13_the_shipped_schemas_are_up_to_date() -> None:
    for kind in schemas.KINDS:
        assert (ROOT / "schemas" / f"{kind.lower()}.schema.json").read_text() == schemas.text(kind)


def test_no_part_is_beyond_structural_schemas() -> None:
    for definition in crds.definitions():
        for path, part in _parts(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "spec"):
            assert not {"const", "$schema", "$ref", "$defs"} & set(part), path
            assert "type" in part or part.get("x-kubernetes-int-or-string"), path
            assert not ("properties" in part and "additionalProperties" in part), path


def _has_rule(schema: t.Any) -> bool:
    if not isinstance(schema, dict):
        return False
    parts = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return "x-kubernetes-validations" in schema or any(map(_has_rule, parts))


def test_a_list_or_map_with_rules_below_it_has_a_bound() -> None:
    """The API server takes one without a bound for endless, and refuses a definition whose rules may cost too much."""
    for definition in [*crds.definitions(), crds.claim_definition()]:
        for path, part in _parts(
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], definition["spec"]["names"]["kind"]
        ):
            assert "maxItems" in part or not _has_rule(part.get("items")), path
            assert "maxProperties" in part or not _has_rule(part.get("additionalProperties")), path


def _reader(document: Json) -> t.Any:
    """Specs, as a run reads an object of the cluster. A pool has its class."""
    origin = DocumentOrigin.CLUSTER if document["kind"] == "GPUNodeClass" else DocumentOrigin.NAMESPACE
    documents = [Document(document["kind"], document, origin)]
    if document["kind"] == "GPUNodePool":
        documents.append(Document("GPUNodeClass", Wrong("GPUNodeClass", {}, "", "").document("good"), DocumentOrigin.CLUSTER))
    return understand(documents)[0]


def _schema(kind: str) -> Json:
    versions = next(one for one in crds.definitions() if one["spec"]["names"]["kind"] == kind)["spec"]["versions"]
    return t.cast(Json, versions[0]["schema"]["openAPIV3Schema"])


def _id(wrong: Wrong) -> str:
    return f"{wrong.base}-{'-'.join(wrong.changes)}-{wrong.sentence[:12]}"


@pytest.mark.parametrize("wrong", WRONG, ids=_id)
def test_the_reader_refuses_what_the_crd_refuses(wrong: Wrong) -> None:
    """Files and objects are held to the same: nobody learns two sets of rules."""
    specs = _reader(wrong.document())
    told = [sentence for sentences in specs.faults.values() for sentence in sentences]
    assert told
    if wrong.same:
        assert any(wrong.sentence in sentence for sentence in told), told


def test_every_rule_of_the_crds_is_broken_by_an_example() -> None:
    broken_rules: set[str] = set()
    for wrong in WRONG:
        for rule, value in _applied(_schema(wrong.kind), wrong.document()):
            try:
                holds = cel.compiled(rule)(value)
            except cel.Fault:  # of an object that its schema refuses already
                continue
            if holds is False:
                broken_rules.add(rule)
    every = {rule["rule"] for kind in schemas.KINDS for _path, part in _parts(_schema(kind), "") for rule in part.get(RULES, [])}
    assert len(every) > 60 and not every - broken_rules, every - broken_rules


@pytest.mark.parametrize("kind", schemas.KINDS)
def test_good_objects_break_no_rule(kind: str) -> None:
    specs = [GOOD[kind], *([SERVICE] if kind == "GPUNodePool" else [])]
    for spec in specs:
        whole = {"metadata": {"name": "good"}, "spec": spec}
        assert broken(_schema(kind), prune(_schema(kind), whole, root=True)) == []


@pytest.mark.parametrize(("kind", "path"), [(kind, path) for kind, paths in DEFAULTS.items() for path in paths])
def test_a_default_of_the_crd_is_that_of_the_reader(kind: str, path: str) -> None:
    """The API server writes it into each object: a pool must not drift, or mean something else, by that."""
    changes: Json = {"spec.budget": {"period": "day", "amount": "9"}}
    if kind == "GPUNodePool":
        changes["spec.timeSlicing"] = {"replicas": 2}
    document = Wrong(kind, changes, "", "").document("other")
    given = Wrong(kind, {**changes, path.replace("[]", ".0"): DEFAULTS[kind][path]}, "", "").document("other")
    assert given != document and prune(_schema(kind), document, root=True) == prune(_schema(kind), given, root=True)
    one, other = _reader(document), _reader(given)
    assert not one.faults and (one.classes, one.pools) == (other.classes, other.pools)


def test_every_value_of_text_or_number_has_a_form() -> None:
    for kind, schema in schemas.KINDS.items():
        for path, part in _parts(schema["properties"]["spec"], kind):
            if isinstance(part.get("type"), list):
                assert path.rpartition(".")[2] in crd_forms.FORMS, path


def test_no_bound_or_rule_is_for_a_place_that_does_not_exist() -> None:
    places = {kind: {path for path, _part in _parts(schemas.KINDS[kind]["properties"]["spec"], "spec")} for kind in schemas.KINDS}
    for kind, rules in crds.RULES.items():
        assert {*rules, *DEFAULTS[kind]} <= places[kind]
    assert set(BOUNDS) <= set().union(*places.values())


RULES = "x-kubernetes-validations"


def _applied(schema: Json, value: t.Any) -> t.Iterator[tuple[str, t.Any]]:
    """Every rule of a schema with each value that it is about."""
    yield from ((rule["rule"], value) for rule in schema.get(RULES, ()))
    if isinstance(value, dict):
        for key, inner in value.items():
            part = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if isinstance(part, dict):
                yield from _applied(part, inner)
    elif isinstance(value, list) and "items" in schema:
        for inner in value:
            yield from _applied(schema["items"], inner)


def _parts(schema: dict[str, t.Any], path: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    yield path, schema
    for name, one in schema.get("properties", {}).items():
        yield from _parts(one, f"{path}.{name}")
    for key, sign in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(key), dict):
            yield from _parts(schema[key], f"{path}{sign}")
