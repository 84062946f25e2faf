# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pool or request says of its new nodes before pods come: the test that they have to pass, and the images that they pull."""

from __future__ import annotations

import re
import typing as t

from ..model import AcceptanceTest, PrePull
from ..model.cluster import ACCEPTANCE_TIMEOUT, PRE_PULL_TIMEOUT
from .reading import Reader

Spec = t.Mapping[str, t.Any]
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
