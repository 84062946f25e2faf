# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/reference/lanes.md says of each lane on each cloud what the code says, and docs/evidence/lanes.md names the tests that prove it."""

from __future__ import annotations

import pathlib
import re
import types
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.ranking import no_lane
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import ENTRIES

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "reference" / "lanes.md").read_text(encoding="utf-8")
EVIDENCE = (ROOT / "docs" / "evidence" / "lanes.md").read_text(encoding="utf-8")
OWN = (ROOT / "docs" / "how_to" / "own_machines.md").read_text(encoding="utf-8")
PROOFS = {page: (ROOT / "docs" / "evidence" / f"{page}.md").read_text(encoding="utf-8") for page in ("talos", "diagnosis")}
CELLS = [(lane, cloud) for lane in Lane for cloud in ENTRIES]


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")]


def overview() -> dict[tuple[str, str], str]:
    """(lane, cloud) → the cell of the first table."""
    head = re.search(r"^\| lane \|(.+)\|$", TEXT, re.MULTILINE)
    assert head is not None
    clouds = re.findall(r"`(\w+)`", head[1])
    table = rows(TEXT.partition("\n## ")[0])
    return {(row[0].strip("`"), cloud): cell for row in table for cloud, cell in zip(clouds, row[1:], strict=True)}


def section(text: str, lane: str) -> dict[str, str]:
    """Cloud → its cell in the section of a lane."""
    found = re.search(rf"^## {lane}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, lane
    return {row[0].strip("`"): row[1] for row in rows(found[1])}


def test_every_lane_has_a_cell_for_every_cloud_and_no_other() -> None:
    assert set(overview()) == {(lane.value, cloud) for lane, cloud in CELLS}


@pytest.mark.parametrize(("lane", "cloud"), CELLS, ids=lambda one: getattr(one, "value", one))
def test_a_cell_says_what_the_code_says(lane: Lane, cloud: str) -> None:
    facts = ENTRIES[cloud].facts
    word = overview()[lane.value, cloud].partition(" ")[0]
    told = section(TEXT, lane.value)[cloud]
    proof = section(EVIDENCE, lane.value).get(cloud, "")
    assert bool(proof) == (word == "proven")
    if lane in facts.lanes:
        assert word == "proven" and not told.startswith(("refused", "experimental"))
        assert re.search(r"`test_\w+`|^As `", proof), "no test is named"
    elif lane is Lane.TAKEOVER and word == "experimental":
        assert told.startswith("experimental: ") and Lane.KUBELET in facts.lanes  # it needs a whole machine
    else:
        assert word == "refused" and told.startswith("refused: ")
        if lane is not Lane.TAKEOVER:
            pool: t.Any = types.SimpleNamespace(lanes=(lane,))
            assert told == f"refused: {no_lane(cloud, pool, facts)}"


def test_what_documents_say_of_takeover_is_told() -> None:
    node_class = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodeClass",
        "metadata": {"name": "any"},
        "spec": {"providers": [{"name": "lambda"}]},
    }
    pool = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodePool",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeClassRef": {"name": "any"}, "template": {"spec": {"lanes": ["takeover"]}}},
    }
    with pytest.raises(InvalidInput) as caught:
        parse([Document("class.yml", node_class), Document("pool.yml", pool)])
    said = next(line for line in str(caught.value).splitlines() if "spec.template.spec.lanes" in line)
    assert said.rpartition("pool.yml: ")[2].rstrip(".") in TEXT


@pytest.mark.parametrize("text", [EVIDENCE, *PROOFS.values()], ids=["lanes", *PROOFS])
def test_every_test_that_is_named_exists(text: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", text))
    defined = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert named and sorted(one for one in named if f"def {one}(" not in defined) == []


def test_the_sentence_that_refuses_a_peer_is_told() -> None:
    from ansible_collections.tgp.gpu.plugins.module_utils.talos.api import peer

    address = peer.ipaddress.ip_address("203.0.113.7")
    said = peer.refusal("lab-1", address, peer.ipaddress.ip_address("192.0.2.4")).message
    assert said in " ".join(OWN.split())
