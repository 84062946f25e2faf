# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our reading of the published schema agrees with a general validator's."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import pathlib
import random
import time
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation import schema_data, validate

from tests.fixtures.talos_nodes import make

ROOT = pathlib.Path(__file__).parents[3]
SILENT = {"title", "description", "markdownDescription", "x-intellij-html-description", "format", "$defs", "$schema", "$id"}


def test_the_packed_schema_is_the_published_file():
    published = (ROOT / "schemas" / "talos-config.schema.json").read_bytes()
    assert schema_data.text() == published
    header = b"blob %d\0" % len(published)
    notice = (ROOT / "schemas" / "talos-config.schema.NOTICE.md").read_text()
    assert hashlib.sha1(header + published, usedforsecurity=False).hexdigest() in notice


def test_threads_that_need_the_schema_first_decode_it_once(monkeypatch):
    """Python fills the table of base85 while another thread reads it already, and calls its letters bad."""
    decoded = []

    def slowly():
        decoded.append(1)
        time.sleep(0.05)
        return json.dumps({"$defs": {"a": {}}}).encode()

    monkeypatch.setattr(validate.schema_data, "text", slowly)
    validate._definitions.cache_clear()
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda _: validate.definitions(), range(8))) == [{"a": {}}] * 8
    finally:
        validate._definitions.cache_clear()
    assert len(decoded) == 1


def test_the_packed_module_is_what_the_script_makes():
    spec = importlib.util.spec_from_file_location("talos_pack", ROOT / "schemas" / "talos_pack.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.TARGET.read_text() == script.pack(script.SOURCE.read_bytes())


def test_the_schema_uses_only_keywords_that_are_read():
    def words(part):
        for keyword, value in part.items():
            yield keyword
            if keyword in ("properties", "patternProperties", "$defs"):
                for inner in value.values():
                    yield from words(inner)
            elif keyword in ("items", "additionalProperties") and isinstance(value, dict):
                yield from words(value)
            elif keyword == "oneOf":
                for inner in value:
                    yield from words(inner)

    assert set(words(json.loads(schema_data.text()))) <= validate.KEYWORDS | SILENT


def _mutations(documents, rng):
    """The documents with one value replaced, one key renamed or one key added, many times."""
    junk = (None, True, 0, -1.5, "text", "", [], {}, [1], {"a": 1}, ["x"], "https://a", "worker")
    for _ in range(400):
        document = copy.deepcopy(rng.choice(documents))
        part = document
        while True:
            keys = list(part) if isinstance(part, dict) else range(len(part))
            if not keys:
                break
            key = rng.choice(list(keys))
            if isinstance(part[key], (dict, list)) and part[key] and rng.random() < 0.7:
                part = part[key]
                continue
            match rng.randrange(3):
                case 0:
                    part[key] = rng.choice(junk)
                case 1 if isinstance(part, dict):
                    part[f"{key}s"] = part.pop(key)
                case _ if isinstance(part, dict):
                    part[rng.choice(["disk", "token", "enabled", "zzz"])] = rng.choice(junk)
            break
        if str(document.get("kind", "")) in validate.kinds():
            yield document


def test_it_agrees_with_a_general_validator():
    definitions = json.loads(schema_data.text())["$defs"]
    documents = build(make())
    seen = {True: 0, False: 0}
    for document in [*documents, *_mutations(documents, random.Random(7))]:
        name = validate.kinds()[str(document.get("kind", ""))]
        general = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions})
        ours, theirs = validate.faults(document), list(general.iter_errors(document))
        assert bool(ours) == bool(theirs), (document, ours, theirs)
        assert {fault.keyword for fault in ours} == {error.validator for error in theirs}
        seen[bool(ours)] += 1
    assert min(seen.values()) > 20


@pytest.mark.parametrize(
    "document, sentence",
    [
        ({"machine": {"systemd": {}}}, "Talos has no field machine.systemd."),
        ({"machine": {"kublet": {}}}, "Talos has no field machine.kublet. Did you mean kubelet?"),
        ({"machine": {"sysctls": {"a": 1}}}, "machine.sysctls.a must be text in quotes and is a number."),
        ({"machine": {"files": [{"op": "move"}]}}, "machine.files[0].op must be create or append or overwrite."),
        ({"cluster": {"controlPlane": {"endpoint": "http://x"}}}, "cluster.controlPlane.endpoint must start with https://."),
        ({"kind": "HostnamConfig"}, "Talos knows no document of kind 'HostnamConfig'. Did you mean HostnameConfig?"),
        ({"kind": "ExtensionServiceConfig", "apiVersion": "v1alpha1"}, "name is missing."),
    ],
)
def test_sentences(document, sentence):
    assert [fault.text for fault in validate.faults(document)] == [sentence]
