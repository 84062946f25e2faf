# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of Talos that runs make at Vultr and Google (L-56): classes that name none, imports that fail, and what must not be left of them."""

from __future__ import annotations

import random
import typing as t

import httpx
from ansible_collections.tgp.gpu.plugins.module_utils.providers.disk_images import FAMILY, ImagePolicy, WantedImage
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.records import MANAGED, labels_of
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.factory import computed

from sandbox.gcp_account import Account as GcpAccount
from sandbox.gcp_images import Image
from sandbox.vultr_account import Account as VultrAccount
from sandbox.vultr_account import Snapshot

if t.TYPE_CHECKING:
    from .grounds import Ground
    from .stage import Stage

BUCKET = "tgp-chaos-images"
SCHEMATIC = {
    "customization": {
        "systemExtensions": {
            "officialExtensions": [
                "siderolabs/nvidia-container-toolkit-production",
                "siderolabs/nvidia-open-gpu-kernel-modules-production",
                "siderolabs/tailscale",
            ]
        }
    }
}
_RELEASE = "1.13.9"
_NUMBER = computed(SCHEMATIC) or ""
_WELL: dict[str, dict[str, t.Any]] = {
    "vultr": {"failing_imports": 0, "stuck_imports": False, "snapshot_quota": 100},
    "gcp": {"failing_imports": 0, "stuck_imports": False, "image_rights": True, "bucket_rights": True},
}
_TRAPS: dict[str, dict[str, dict[str, t.Any]]] = {
    "failing": {"vultr": {"failing_imports": 9}, "gcp": {"failing_imports": 9}},
    "once": {"vultr": {"failing_imports": 1}, "gcp": {"failing_imports": 1}},
    "stuck": {"vultr": {"stuck_imports": True}, "gcp": {"stuck_imports": True}},
    "quota": {"vultr": {"snapshot_quota": 0}, "gcp": {"image_rights": False}},
    "bucket": {"vultr": {"failing_imports": 9}, "gcp": {"bucket_rights": False}},
}


def choose(stage: Stage, rest: str) -> None:
    """``images IfMissing`` or ``images Never there``: classes name no image from now on, but what is in it, and their pools take lane talos;
    with ``there`` the account has the image."""
    policy, *there = rest.split()
    stage.sight.note_documents()
    GcpAccount.of(stage.world).turn({"bucket": BUCKET})
    for one in stage.documents:
        spec = one["spec"]
        if one["kind"] == "GPUNodeClass":
            spec.setdefault("talosConfig", {})["schematic"] = SCHEMATIC
            spec["talosConfig"].pop("image", None)
            _set(spec, ImagePolicy(policy))
        elif one["kind"] == "GPUNodePool":
            spec.setdefault("template", {}).setdefault("spec", {})["lanes"] = ["talos"]
    if there:
        _put(stage)


def _set(spec: dict[str, t.Any], policy: ImagePolicy) -> None:
    for choice in spec["providers"]:
        more = {"imageBucket": BUCKET} if choice["name"] == "gcp" else {}
        choice["settings"] = {**(choice.get("settings") or {}), "imagePolicy": policy.value, **more}


def _put(stage: Stage) -> None:
    """Somebody has made the image with images.yml, for no cluster in particular."""
    with httpx.Client(transport=httpx.WSGITransport(app=stage.box.apps["image_factory"])) as client:
        client.post("http://factory.test/schematics", json=SCHEMATIC)  # so has the factory heard of it
    now, wanted = stage.clock.now(), WantedImage(_NUMBER, _RELEASE)
    url = f"https://factory.talos.dev/image/{_NUMBER}/v{_RELEASE}/vultr-amd64.raw"
    VultrAccount.of(stage.world).snapshots["by-hand"] = Snapshot("by-hand", wanted.name(dots=True), url, 0.0, now)
    labels = {MANAGED: "true", **labels_of({"talos": _RELEASE, "schematic": _NUMBER})}
    GcpAccount.of(stage.world).own_images[wanted.name()] = Image(wanted.name(), FAMILY, _NUMBER, labels, 1, now, 0.0)


def spring(stage: Stage, rest: str) -> None:
    """``import failing``: what becomes of imports from now on. ``import removed``: a person removes all images by hand; ``import well``."""
    if rest == "removed":
        VultrAccount.of(stage.world).snapshots.clear()
        GcpAccount.of(stage.world).own_images.clear()
        return
    traps = _WELL if rest == "well" else _TRAPS[rest]
    VultrAccount.of(stage.world).turn(traps["vultr"])
    GcpAccount.of(stage.world).turn(traps["gcp"])


def mend(stage: Stage) -> None:
    """Imports succeed, those that hung end without an image, and an image that is missing may be made."""
    spring(stage, "well")
    now = stage.clock.seconds()
    vultr, gcp = VultrAccount.of(stage.world).snapshots, GcpAccount.of(stage.world).own_images
    for kept in (vultr, gcp):
        for name in [name for name, one in kept.items() if one.ready > now + 3600]:
            del kept[name]
    for operation in GcpAccount.of(stage.world).operations.values():
        if operation.done > now + 3600:
            operation.done, operation.errors = now, [{"code": "INTERNAL_ERROR", "message": "Internal error."}]
    for one in stage.documents:
        if one["kind"] == "GPUNodeClass" and "schematic" in (one["spec"].get("talosConfig") or {}) and not _named(one["spec"]):
            _set(one["spec"], ImagePolicy.IF_MISSING)


def _named(spec: dict[str, t.Any]) -> bool:
    return all(
        (choice.get("settings") or {}).get("imagePolicy", ImagePolicy.NEVER.value) != ImagePolicy.NEVER.value
        for choice in spec["providers"]
    )


def left(stage: Stage) -> dict[str, int]:
    """What nobody needs any more: files in the bucket, and images beside the first one of the same content, where no run was to make more."""
    objects = sum(len(held) for held in GcpAccount.of(stage.world).buckets.values())
    now, own = stage.clock.seconds(), f"-c{stage.sight.cluster_id}"
    vultr = VultrAccount.of(stage.world)
    names = [one.description for one in vultr.snapshots.values() if vultr.snapshot_state(one, now)]
    names += list(GcpAccount.of(stage.world).own_images)
    more = sum(1 for name in names if name.partition(own)[2].startswith("-"))
    always = any(
        (choice.get("settings") or {}).get("imagePolicy") == ImagePolicy.ALWAYS.value
        for one in stage.documents if one["kind"] == "GPUNodeClass" for choice in one["spec"]["providers"]
    )  # fmt: skip
    return {"files of images": objects, "images": 0 if always else more}


LINES: dict[str, t.Callable[[Stage, str], None]] = {"images": choose, "import": spring}


# ---- chance


def draw(ground: Ground, seed: str) -> list[list[str]]:
    """In half of the stories at Vultr or Google a class that names no image. With dice of its own: others stay."""
    dice = random.Random(f"images {seed}")
    if ground.cloud not in _WELL or dice.random() < 0.5:
        return []
    policy = dice.choice(("Never there", "IfMissing", "IfMissing", "Always"))
    runs = ["run provision nodes=1", "run provision nodes=2", "run autoscale"]
    trap = dice.choice(([], [f"import {dice.choice(sorted(_TRAPS))}"]))
    kill = f" kill={dice.randint(10, 60)}{dice.choice(('', ' after'))}" if dice.random() < 0.3 else ""
    return [
        [
            f"images {policy}",
            *trap,
            dice.choice(runs) + kill,
            "rest 70",
            *dice.choice(([], ["import removed"], ["demand 1", "rest 400"])),
            *dice.choice(([], ["import well"], ["rest 1900"])),
            dice.choice(runs),
            "rest 400",
            "run reap",
        ]
    ]
