# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of rights in the form that the templates of the Helm chart read. ``python -m charts.rights`` writes it into the chart."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.tgp.gpu.plugins.module_utils.kube.needed_rights import NEEDS, Need, needs_of

FILE = Path(__file__).parent / "tgp-gpu" / "files" / "rights.yaml"
_HEAD = "# Written by `python -m charts.rights` from plugins/module_utils/kube/needed_rights.py. Change that.\n"


def rules(need: Need) -> list[dict[str, t.Any]]:
    """Its rights as RBAC rules, one for all verbs on a resource, and one for all resources with the same verbs."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for right in need.rights:
        verbs.setdefault((right.group, right.resource, right.name), []).append(right.verb)
    resources: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (group, resource, name), found in verbs.items():
        resources.setdefault((group, name, tuple(found)), []).append(resource)
    return [
        {"apiGroups": [group], "resources": names, **({"resourceNames": [name]} if name else {}), "verbs": list(found)}
        for (group, name, found), names in resources.items()
    ]


def table() -> list[dict[str, t.Any]]:
    """Each need once: why, when (a feature, or "" for always), in which namespace ("" = the cluster), the rules, and whose it is."""
    owners: dict[Need, list[str]] = {}
    for playbook in NEEDS:
        for need in needs_of(playbook):
            owners.setdefault(need, []).append(playbook)
    return [
        {"why": need.why, "when": need.when, "namespace": need.rights[0].namespace, "playbooks": names, "rules": rules(need)}
        for need, names in owners.items()
    ]


def text() -> str:
    return _HEAD + "".join(f"- {json.dumps(entry)}\n".replace(', "rules": [', ',\n  "rules": [') for entry in table())


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
