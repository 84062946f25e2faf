# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installer images: which of them can make a GPU node (S0-21)."""

from __future__ import annotations

import re
import typing as t

from ..versions import tag_of


def image_problems(image: str) -> t.Iterator[str]:
    """Whether an image reference can install Talos on a GPU machine."""
    repository, tag = image.partition("@")[0], tag_of(image)
    name = repository.removesuffix(f":{tag}") if tag else repository
    if name.endswith("siderolabs/talos"):
        yield (
            f"{image} is the image for running Talos inside a container: it can neither boot nor install a machine; write an "
            "installer of the Image Factory: factory.talos.dev/metal-installer/<schematic id>:v<version>."
        )
    elif name.endswith("siderolabs/installer"):
        yield (
            f"{image} carries no system extensions, so the node would have no GPU driver and no tailscale; write an installer of "
            "the Image Factory: factory.talos.dev/metal-installer/<schematic id>:v<version>."
        )
    elif name.startswith("factory.talos.dev/") and not re.fullmatch(
        r"factory\.talos\.dev/([a-z0-9-]+-)?installer(-secureboot)?/[0-9a-f]{64}", name
    ):
        yield f"{image} is no installer of the Image Factory: factory.talos.dev/metal-installer/<64 hex digits>:v<version>."
    elif not tag and "@" not in image:
        yield f"{image} has no version; end it with :v<Talos version>."
    elif tag in ("latest", "main"):
        yield f"{image} moves with each release; end it with :v<Talos version>."
