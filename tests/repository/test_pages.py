# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of docs/ say what is so: every option, field, lever and gap is on them, and their links lead somewhere."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import KINDS
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import ENTRIES

from sandbox import behaviour, faults, scenario
from sandbox.kube import KNOWN_GAPS
from sandbox.server import Served

from .tree import ROOT, below, name, names_of_tests

PAGES = ("architecture", "awx_and_cron", "clouds", "coverage", "development", "documents", "prices", "rules", "sandbox")
_HEAD = {"apiVersion", "kind", "metadata", "status"}


def page(which: str) -> str:
    (path,) = (ROOT / "docs").glob(f"*/{which}.md")
    return path.read_text(encoding="utf-8")


def test_every_page_is_there_and_its_links_lead_somewhere() -> None:
    texts = {name(path): path.read_text(encoding="utf-8") for path in [*below("docs", suffix=".md"), ROOT / "README.md"]}
    assert set(PAGES) <= {path.stem for path in below("docs", suffix=".md")}
    lost = [
        (where, link)
        for where, text in texts.items()
        for link in re.findall(
            r"\b((?:docs|examples|files|meta|playbooks|roles|sandbox|tests)/[\w./-]+\.(?:md|ya?ml|py|txt))\b", text
        )
        if not (ROOT / link).exists()
    ]
    assert lost == []


# ---- documents.md


def fields(schema: t.Mapping[str, t.Any], path: str = "") -> t.Iterator[str]:
    """Dotted paths of all fields of a schema; a list's items count as the list."""
    for key, inner in (schema.get("properties") or {}).items():
        here = f"{path}.{key}" if path else key
        yield here
        yield from fields(inner, here)
    if "items" in schema:
        yield from fields(schema["items"], path)


def described(kind: str) -> list[str]:
    """What stands in backquotes in the first cells of the table below the kind's heading."""
    text = re.search(rf"^## {kind}\n(.*?)(?=^## |\Z)", page("documents"), re.MULTILINE | re.DOTALL)
    assert text is not None
    return [found for row in re.findall(r"^\| (`.+?) \|", text[1], re.MULTILINE) for found in re.findall(r"`([^`]+)`", row)]


def test_every_field_of_the_schemas_is_described() -> None:
    for kind, schema in KINDS.items():
        wanted = [one for one in fields(schema["properties"]["spec"]) if ".nodeGroups." not in one]
        found = described(kind)
        assert sorted(set(found)) == sorted(found), kind
        assert (sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))) == ([], []), kind
        assert set(schema["properties"]) - {"spec"} == _HEAD


def test_settings_of_clouds_are_described() -> None:
    text = page("clouds")
    assert [(name, one) for name, entry in ENTRIES.items() for one in entry.settings if f"`{one}`" not in text] == []


# ---- clouds.md


def test_every_variable_and_figure_of_a_cloud_is_described() -> None:
    text = page("clouds")
    variables = [one for entry in ENTRIES.values() for name in entry.spec for one in entry.variables(name)]
    assert [one for one in variables if f"`{one}`" not in text] == []
    for cloud, entry in ENTRIES.items():
        section = re.search(rf"^## .*\(`{cloud}`\)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section is not None, cloud
        assert f"{entry.facts.registration_timeout // 60} minutes" in section[1]
        assert all(f"`{lane.value}`" in section[1] for lane in entry.facts.lanes)
    assert [cloud for cloud in ENTRIES if f"`{cloud}`" not in text] == []


def test_L16_the_page_says_when_the_bill_of_each_cloud_begins_and_ends() -> None:
    table = page("clouds").partition("### When a bill begins and ends")[2].partition("###")[0]
    rows = {
        row[0]: row[1:]
        for row in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (\d+) s(?:, at least (\d+) s)? \|$", table, re.MULTILINE)
    }
    rented = {cloud: entry.facts for cloud, entry in ENTRIES.items() if entry.facts.rented}
    assert {cloud: int(row[2]) for cloud, row in rows.items()} == {cloud: one.billing_granularity for cloud, one in rented.items()}
    assert {cloud: int(row[3] or 0) for cloud, row in rows.items()} == {cloud: one.billing_minimum for cloud, one in rented.items()}
    assert {cloud for cloud, row in rows.items() if row[0].startswith("`")} == {
        cloud for cloud, one in rented.items() if one.tells_start
    }
    assert {cloud for cloud, row in rows.items() if row[1].startswith("not said")} == {
        cloud for cloud, one in rented.items() if one.billed_until_gone
    }


# ---- sandbox.md


def test_every_lever_of_the_sandbox_is_described() -> None:
    text = page("sandbox")
    served = Served(scenario.load())
    served.stop()
    rules = [field for field in faults.Fault.__dataclass_fields__ if field not in ("kind", "hits")]
    known = [*served.environment, *faults.KINDS, *behaviour.KINDS, *rules, *scenario.names()]
    assert [one for one in known if f"`{one}`" not in text] == []


def test_the_gaps_of_the_emulator_are_told() -> None:
    section = re.search(
        r"^### Kubernetes\n(.*?)(?=^##|\Z)", page("sandbox").partition("## Known gaps")[2], re.MULTILINE | re.DOTALL
    )
    assert section is not None
    assert re.findall(r"^- (.+)$", section[1], re.MULTILINE) == list(KNOWN_GAPS)


# ---- rules.md


def test_every_rule_that_is_tested_is_told() -> None:
    """By number; and every case of orphans that the code names."""
    text = page("rules")
    told = {int(number) for number in re.findall(r"^## L-(\d+) ", text, re.MULTILINE)}
    tested = {int(number) for one in names_of_tests() for number in re.findall(r"^test_[lL]0*(\d+)_", one)}
    assert tested - told == set()
    code = "".join(path.read_text(encoding="utf-8") for path in below("plugins/module_utils/planner", suffix=".py"))
    cases = set(re.findall(r"\bO\d{1,2}\b", code))
    assert len(cases) > 10 and {one for one in cases if f"| {one} |" not in text} == set()


def test_a_notice_has_one_of_the_kinds_of_the_page_and_of_its_schema() -> None:
    table = page("events").partition("## Notices")[2].partition("\n\nEach is sent")[0]
    documented = {
        kind for row in table.splitlines() for kind in re.findall(r"`([a-z_]+)`", row.split("|")[1] if "|" in row else "")
    }
    schema = json.loads((ROOT / "schemas" / "notice.schema.json").read_text(encoding="utf-8"))
    assert documented == set(schema["properties"]["kind"]["enum"])
    code = [path.read_text(encoding="utf-8") for path in below("plugins/module_utils", suffix=".py")]
    sent = {kind for text in code for kind in re.findall(r"(?:\.notice|Message)\(\s*\"([a-z_]+)\"", text)}
    assert len(sent) > 8 and sent <= documented
