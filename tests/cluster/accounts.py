# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An account for each playbook, with the rights that the table gives it and no more; and what it used, as the API server noted it."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.kube.needed_rights import needs_of
from ansible_collections.tgp.gpu.plugins.module_utils.kube.rbac import Right

from charts.rights import rules

from .plane import RBAC, Plane
from .stage import shipped_account

SPACE = "tgp-system"
_ACCOUNTS = f"/api/v1/namespaces/{SPACE}/serviceaccounts"
_KIND = "rbac.authorization.k8s.io"


@dataclasses.dataclass(frozen=True, slots=True)
class Used:
    """A right that an account used, and whether the API server let it."""

    right: Right
    allowed: bool


class Accounts:
    """Those of one test module: ``mark`` is part of their names."""

    def __init__(self, plane: Plane, mark: str) -> None:
        shipped_account(plane)  # with it, the namespace
        self.plane, self.mark = plane, mark
        self._tokens: dict[str, str] = {}

    def name(self, playbook: str) -> str:
        return f"{playbook.replace('_', '-')}-{self.mark}"

    def token(self, playbook: str, without: Right | None = None) -> str:
        """Of the account of a playbook. ``without``: of another one, which lacks this right."""
        name = self.name(playbook) if without is None else f"{self.name(playbook)}-{len(self._tokens)}"
        if name not in self._tokens:
            self.plane.create(_ACCOUNTS, {"metadata": {"name": name}})
            spaces: dict[str, list[dict[str, t.Any]]] = {}
            for need in needs_of(playbook):
                kept = dataclasses.replace(need, rights=tuple(right for right in need.rights if right != without))
                spaces.setdefault(need.rights[0].namespace, []).extend(rules(kept))
            for space, granted in spaces.items():
                self._grant(name, space, granted)
            made = self.plane.create(f"{_ACCOUNTS}/{name}/token", {"spec": {"expirationSeconds": 7200}})
            self._tokens[name] = str(made["status"]["token"])
        return self._tokens[name]

    def _grant(self, name: str, space: str, granted: list[dict[str, t.Any]]) -> None:
        base = f"{RBAC}/namespaces/{space}/" if space else f"{RBAC}/cluster"
        kind = "Role" if space else "ClusterRole"
        self.plane.create(f"{base}roles", {"metadata": {"name": name}, "rules": granted})
        subject = {"kind": "ServiceAccount", "namespace": SPACE, "name": name}
        reference = {"apiGroup": _KIND, "kind": kind, "name": name}
        self.plane.create(f"{base}rolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference})

    def used(self, playbook: str) -> set[Used]:
        """By the account of this playbook, as the API server noted it."""
        user = f"system:serviceaccount:{SPACE}:{self.name(playbook)}"
        with open(self.plane.audit_log, encoding="utf-8") as log:
            notes = [note for note in map(json.loads, log) if note["user"]["username"] == user]
        return {_used(note) for note in notes if note.get("objectRef")}


def _used(note: dict[str, t.Any]) -> Used:
    about = note["objectRef"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    right = Right(note["verb"], resource, about.get("apiGroup", ""), about.get("namespace", ""), about.get("name", ""))
    return Used(right, note["annotations"]["authorization.k8s.io/decision"] == "allow")
