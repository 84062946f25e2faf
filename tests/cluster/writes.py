# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a write does, in a few words that are the same in every run: names, ids and times are left out of them."""

from __future__ import annotations

import json
import re
import typing as t

_OBJECT = re.compile(
    r"^/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/)?(?P<kind>[^/?]+)(?:/(?P<name>[^/?]+))?(?:/(?P<part>[^/?]+))?"
)
_KINDS = {
    "tgp-claim-": "claim",
    "tgp-ledger-": "ledger",
    "tgp-state-": "state",
    "bootstrap-token-": "bootstrap token",
}
_SINGULAR = {"nodes": "Node", "pods": "pod", "leases": "lock", "certificatesigningrequests": "certificate request"}
_VERBS = {"POST": "made", "PUT": "written", "PATCH": "written", "DELETE": "removed"}
_VARYING = {"phase_since", "history"}  # they go with every other change
_ID = re.compile(r"(?=[^/]*\d)[^/]{6,}|[0-9a-f-]{8,}")


class Naming:
    """Names of the writes to one cluster. It remembers the claims that were written, to tell what is new in the next."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[str, t.Any]] = {}

    def of(self, method: str, path: str, body: bytes) -> str:
        """Such as "claim: phase Ready" or "Node removed"."""
        found = _OBJECT.match(path)
        if found is None:
            return f"{method} {path}"
        given = _json(body)
        name = found["name"] or str((given.get("metadata") or {}).get("name") or "")
        kind = next((word for start, word in _KINDS.items() if name.startswith(start)), _SINGULAR.get(found["kind"], found["kind"]))
        if kind == "claim" and method != "DELETE":
            return f"claim: {self._news(name, given)}"
        if kind in ("ledger", "state"):  # each is made where it is missing
            return f"{kind} written"
        if kind == "lock":
            return f"lock {_grip(given)}"
        if found["part"]:
            return f"{kind}: {found['part']}"
        if method == "PATCH":
            return f"{kind}: {', '.join(_fields(given)) or 'written'}"
        return f"{kind} {_VERBS[method]}"

    def remember(self, method: str, path: str, body: bytes) -> None:
        """The write has taken effect."""
        name = str((_json(body).get("metadata") or {}).get("name") or "")
        if method in ("POST", "PUT") and name.startswith("tgp-claim-"):
            self._claims[name] = _record(_json(body))

    def _news(self, name: str, given: dict[str, t.Any]) -> str:
        new, old = _record(given), self._claims.get(name)
        if old is None:
            return f"made, phase {new.get('phase')}"
        changed = sorted(key for key in {*new, *old} - _VARYING if new.get(key) != old.get(key))
        words = [f"phase {new.get('phase')}"] if "phase" in changed else []
        return ", ".join([*words, *(key for key in changed if key != "phase")]) or "nothing new"


def of_service(what: str) -> str:
    """The "METHOD path" of a cloud's or the mesh's write without ids."""
    method, _blank, path = what.partition(" ")
    parts = ["ID" if _ID.fullmatch(one) else one for one in path.split("/") if one]
    return f"{method} …/{'/'.join(parts[-2:])}"


def pattern(what: str) -> str:
    """An expression for the path (and query) of such writes, whatever their ids."""
    path = what.partition(" ")[2]
    parts = ["[^/?]+" if _ID.fullmatch(one) else re.escape(one) for one in path.split("/")]
    return f"^{'/'.join(parts)}(\\?|$)"


def _grip(lease: dict[str, t.Any]) -> str:
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity"):
        return "let go"
    return "taken" if spec.get("acquireTime") == spec.get("renewTime") else "kept"


def _fields(patch: t.Any) -> list[str]:
    """What a merge patch or a JSON patch is about: the keys below metadata and spec."""
    if isinstance(patch, list):
        return sorted({str(one.get("path", "")).strip("/").replace("/", ".") for one in patch})
    found = set()
    for top, inner in patch.items():
        found |= {key for key in inner if key not in ("resourceVersion", "uid")} if isinstance(inner, dict) else {top}
    return sorted(found)


def _record(configmap: dict[str, t.Any]) -> dict[str, t.Any]:
    found = _json(((configmap.get("data") or {}).get("claim.json") or "").encode())
    return found if isinstance(found, dict) else {}


def _json(body: bytes) -> t.Any:
    try:
        return json.loads(body or b"{}")
    except ValueError:
        return {}
