# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pool or request says of its new nodes before pods come: the test that they have to pass, the images that they pull, and how pods
will share their GPUs."""

from __future__ import annotations

import re
import typing as t

from ..model import AcceptanceTest, NodeClass, PrePull
from ..model.cluster import ACCEPTANCE_TIMEOUT, PRE_PULL_TIMEOUT
from ..model.labels import GPU_TYPE_LABEL
from ..planner.offers import gpu_models, mig_profiles
from .reading import Reader

Spec = t.Mapping[str, t.Any]
NO_PROFILES = "names no MIG profile. Name one, such as 1g.10gb, or remove mig."
DIVIDED_GPUS = "needs a device plugin that shares no MIG instance: no draDriver and no timeSlicing. Remove one of them."
MPS_ALONE = (
    "shares whole GPUs of a device plugin, and only one way does: no draDriver, no mig and no timeSlicing. Remove one of them."
)
SLICED_DEVICES = "is of device plugins, and draDriver says that a DRA driver offers the GPUs. Remove one of them."
_ACCEPTANCE, _PRE_PULL = "spec.acceptance", "spec.prePull"
_SHORTEST = 30  # seconds
_PART = "[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]*)?(?:@[a-z0-9]+:[0-9a-f]{{32,}})?"
)
_SECRET = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


def acceptance(spec: Spec, reader: Reader) -> AcceptanceTest | None:
    """The test of a pool or request (L-35); None without one."""
    if "acceptance" not in spec:
        return None
    given: Spec = spec["acceptance"]
    if ("test" in given) == ("image" in given):
        reader.fault(_ACCEPTANCE, "needs exactly one of test (vectoradd) and image (a test of your own).")
    if "command" in given and "image" not in given:
        reader.fault(f"{_ACCEPTANCE}.command", "is of an image of your own. Give image, or remove it.")
    return AcceptanceTest(
        given.get("image", ""),
        tuple(given.get("command", ())),
        given.get("runtimeClassName", ""),
        _timeout(given, _ACCEPTANCE, ACCEPTANCE_TIMEOUT, reader),
        given.get("gpus", "all"),
    )


def pre_pull(spec: Spec, reader: Reader) -> PrePull | None:
    """The images of a pool or request that its new nodes pull (L-43), each once; None without any."""
    if "prePull" not in spec:
        return None
    given: Spec = spec["prePull"]
    for place, image in enumerate(given["images"]):
        if not _IMAGE.fullmatch(image):
            reader.fault(
                f"{_PRE_PULL}.images[{place}]", f"{image!r} is not the name of an image. Write it as a pod does: registry/path:tag."
            )
    for place, name in enumerate(given.get("imagePullSecrets", ())):
        if not _SECRET.fullmatch(name):
            reader.fault(f"{_PRE_PULL}.imagePullSecrets[{place}]", f"{name!r} is not the name of a Secret.")
    return PrePull(
        tuple(dict.fromkeys(given["images"])),
        tuple(given.get("imagePullSecrets", ())),
        _timeout(given, _PRE_PULL, PRE_PULL_TIMEOUT, reader),
    )


def _timeout(given: Spec, path: str, usual: int, reader: Reader) -> int:
    lasts = reader.duration(given.get("timeout"), f"{path}.timeout", usual)
    if lasts < _SHORTEST:
        reader.fault(f"{path}.timeout", f"{lasts} s is too short to pull an image. Give {_SHORTEST}s or more.")
    return lasts


# ---- how the pods on its nodes share a GPU: by MIG profiles (L-52), or in slices of time


def shared_gpus(spec: Spec, reader: Reader, node_class: NodeClass | None) -> dict[str, t.Any]:
    """The Pool's fields that they give, by name. ``node_class`` None = it is not known, and its own fault was reported."""
    sliced = spec.get("timeSlicing") or {}
    if "draDriver" in spec and sliced:
        reader.fault("spec.timeSlicing", SLICED_DEVICES)
    if "mps" in spec:
        sliced = spec["mps"]
        if "draDriver" in spec or "timeSlicing" in spec or "mig" in spec:
            reader.fault("spec.mps", MPS_ALONE)
    return {
        "mig": _mig(spec, reader, node_class),
        "mps": "mps" in spec,
        "slices": sliced.get("replicas", 1),
        "slices_renamed": sliced.get("renameByDefault", False),
    }


def _mig(spec: Spec, reader: Reader, node_class: NodeClass | None) -> tuple[tuple[str, int], ...]:
    """Each MIG profile with its instances on a GPU. Faults: what another field excludes, and what no GPU that may be rented holds."""
    if "mig" not in spec:
        return ()
    wanted = spec["mig"].get("profiles", {})
    if "draDriver" in spec or "timeSlicing" in spec:
        reader.fault("spec.mig", DIVIDED_GPUS)
    if not wanted:
        reader.fault("spec.mig.profiles", NO_PROFILES)
    elif why := mig_profiles.nowhere(wanted):
        reader.fault("spec.mig.profiles", f"{why}. Name a layout of NVIDIA's MIG User Guide, or leave this out.")
    else:
        for kinds in _named(spec, node_class):
            if why := mig_profiles.against_kinds(kinds, wanted):
                reader.fault("spec.mig.profiles", f"{why}. Name profiles of a GPU type that the class and the pool accept.")
    return tuple(sorted(wanted.items()))


def _named(spec: Spec, node_class: NodeClass | None) -> t.Iterator[t.Sequence[str]]:
    """Each list of GPU types of which a machine must have one: that of the class, and those of the pool's requirements."""
    if node_class is not None and node_class.gpu_types:
        yield node_class.gpu_types
    for one in spec.get("template", {}).get("spec", {}).get("requirements", ()):
        known = [value for value in one.get("values", ()) if gpu_models.parse(value) is not None]
        if one["key"] == GPU_TYPE_LABEL and one["operator"] == "In" and known:
            yield known
