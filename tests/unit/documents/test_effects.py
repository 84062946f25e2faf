# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""D-06: what a field says reaches a plan or what a machine is made from. Each field is changed alone; a parsed record is not enough."""

from __future__ import annotations

import base64
import copy
import dataclasses
import hashlib
import itertools
import typing as t
from datetime import datetime, timezone
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document, DocumentOrigin
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import KINDS
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.model import Specs
from ansible_collections.tgp.gpu.plugins.module_utils.observe.documents import with_hubs

from .effects import Json, plans, rendered
from .test_meaning import (
    BASE,
    MACHINE,
    OF_HUB_SECRETS,
    OF_OPERATORS,
    OF_SERVICES,
    OF_TUNNELS,
    OPERATORS_KEY,
    OTHER,
    PAIR,
    SERVICE_POOL,
    changed,
    document,
    with_hub,
)

OF_HUBS = {**OF_TUNNELS, **OF_HUB_SECRETS, **OF_OPERATORS, OPERATORS_KEY: PAIR[0]}
OTHERS = {
    kind: {
        **OTHER[kind],
        **(OF_SERVICES if kind == "GPUNodePool" else OF_HUBS),
        **({"replicas": 2} if kind == "GPUNodePool" else {}),
    }
    for kind in KINDS
}
FIELDS = [pytest.param(kind, path, id=f"{kind}-{path}") for kind in KINDS for path in OTHERS[kind]]


# what a field needs beside it, so that it can have an effect
BESIDE: dict[str, t.Callable[[Json], t.Any]] = {
    "allowedNamespaces": lambda spec: spec.update(allowedNamespaces=["team-b"]),
    "providers.0.priority": lambda spec: spec["providers"][2].update(priority=2),
    "strategy": lambda spec: spec["providers"][2].update(priority=5),
    "limits.maxHourlyCost": lambda spec: spec.update(limits={"maxHourlyCost": "0.5"}),
    "providers.1.machines.0.gpuMemoryMib": lambda spec: spec.update(instanceRequirements={"minGpuMemory": 20}),
    "providers.2.bidMargin": lambda spec: spec.update(instanceRequirements={"spotAllowed": True}),
    "providers.2.spotDiscountMin": lambda spec: spec.update(instanceRequirements={"spotAllowed": True}),
    "instanceRequirements.spotDiscountMin": lambda spec: spec.update(instanceRequirements={"spotAllowed": True}),
    "template.spec.lanes": lambda spec: spec.update(nodeClassRef={"name": "racks"}),
    "disruption.deleteStoppedAfter": lambda spec: spec.update(nodeClassRef={"name": "racks"}),
    "disruption.minAge": lambda spec: spec["disruption"].update(consolidateAfter="1m"),
    "wireguardConfig.hubAddress": lambda spec: spec["wireguardConfig"].update(allowedIPs=["192.168.10.0/24"]),
    "spot": lambda spec: (spec.pop("credentialsRef"), spec.update(provider="vast")),
}


def base_of(kind: str, path: str) -> Json:
    """The document that the field is changed in: what would hide it is left out."""
    spec = copy.deepcopy(with_hub(kind, path) if path in OF_HUBS else BASE[kind])
    if path in OF_SERVICES:
        return copy.deepcopy(SERVICE_POOL)
    if not path.startswith("budget"):
        spec.pop("budget", None)
    if kind == "GPUNodePool" and not path.startswith("calendar"):
        spec.pop("calendar")
        if not path.startswith("disruption.budgets"):
            del spec["disruption"]["budgets"]
        if not path.startswith("template.spec.requirements"):
            del spec["template"]["spec"]["requirements"]
    BESIDE.get(path, bool)(spec)
    return spec


class Secrets:
    """A cluster with any Secret, whose keys say what is in them. The public key of ``hub`` belongs to the private keys of the other Secrets."""

    def get(self, path: str) -> Json:
        return {"data": {key: base64.b64encode(self._value(path, key).encode()).decode() for key in self._KEYS}}

    _FIELDS = ("endpoint", "serverEndpoint", "publicKey", "privateKey", "network", "address", "allowedIPs")
    _KEYS = (*_FIELDS, *(f"other-{field}SecretRef" for field in _FIELDS))

    @staticmethod
    def _value(path: str, key: str) -> str:
        first = path.endswith("/tgp-system/secrets/hub") and not key.startswith("other-")
        seed = hashlib.sha256(f"{path} {key}".encode()).digest()
        name = key.lower()
        if "endpoint" in name:
            return f"203.0.113.{seed[0]}:51820"
        if "public" in name:
            return PAIR[1] if first else base64.b64encode(seed).decode()
        if "private" in name:
            return base64.b64encode(seed).decode() if first else PAIR[0]
        return f"192.168.{seed[0]}.0/24" if "allowed" in name else f"10.{seed[0]}.0.2/24"


def specs_of(kind: str, spec: Json, folder: Path) -> Specs:
    """The document among others: a second pool that competes with it, a class to change to, a pool of another namespace."""
    documents = [document(kind, spec)]
    if kind == "GPUNodePool":
        clouds = {"base": ("lambda", "vast"), "second": ("vast",), "containers": ("runpod", "vast")}
        documents += [
            document("GPUNodeClass", {"providers": [{"name": cloud} for cloud in names]}, name) for name, names in clouds.items()
        ]
        documents += [document("GPUNodeClass", {"providers": [{"name": "webhook", "machines": [MACHINE]}]}, "racks")]
        documents += [document("GPUNodePool", {"nodeClassRef": {"name": "base"}, "weight": 2, "limits": {"maxNodes": 1}}, "rival")]
    if kind == "GPUNodeClass":
        documents += [document("GPUNodePool", {"nodeClassRef": {"name": "base"}}, "base")]
        if "allowedNamespaces" in spec:
            mapping = {**documents[-1].mapping, "metadata": {"name": "theirs", "namespace": "team-b"}}
            documents += [Document("GPUNodePool team-b/theirs", mapping, DocumentOrigin.NAMESPACE)]
    places = [dataclasses.replace(one, place=str(folder / one.place)) if "." in one.place else one for one in documents]
    return with_hubs(parse(places, allow_commands=["is-idle"])[0], t.cast(Kube, Secrets()))


def differs(first: t.Iterable[t.Any], second: t.Iterable[t.Any]) -> bool:
    return any(one != other for one, other in itertools.zip_longest(first, second))


@pytest.mark.parametrize(("kind", "path"), FIELDS)
def test_D06_each_field_changes_a_plan_or_what_a_machine_is_made_from(
    kind: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker.yaml").write_text("machine: {from: file}")
    spec = base_of(kind, path)
    first, again = specs_of(kind, spec, tmp_path), specs_of(kind, spec, tmp_path)
    try:
        second = specs_of(kind, changed(spec, path, OTHERS[kind][path]), tmp_path)
    except InvalidInput as refusal:
        words = {"allowedNamespaces": "does not allow namespace team-b", OPERATORS_KEY: "it belongs to privateKey"}
        assert words[path] in str(refusal)
        return
    assert not differs(rendered(first, monkeypatch), rendered(again, monkeypatch)), "the same document makes the same"
    assert differs(rendered(first, monkeypatch), rendered(second, monkeypatch)) or differs(
        plans(first, monkeypatch), plans(second, monkeypatch)
    )


def test_L33_a_class_that_is_being_deleted_still_says_how_its_machines_are_reached() -> None:
    """The endpoints of own machines stand nowhere else. Nothing is launched of it."""
    racks = document("GPUNodeClass", {"providers": [{"name": "webhook", "machines": [MACHINE]}]}, "racks")
    going = dataclasses.replace(racks, deletion=datetime(2026, 1, 1, tzinfo=timezone.utc))
    pool = document("GPUNodePool", {"nodeClassRef": {"name": "racks"}}, "p")
    for documents in ([going, pool], [going]):
        specs = parse(documents)[0]
        choice = specs.choice("webhook")
        assert choice is not None and [machine.name for machine in choice.machines] == ["rack-1"]
        assert specs.pools == ()
    assert parse([going, pool])[0].paused == {"default/p": "its class racks cannot be used: it is being deleted"}
