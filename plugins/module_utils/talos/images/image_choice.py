# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Talos image of a class: by its reference, by its content (a schematic), or both. Asks nobody; see ``factory`` for that."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ...core.errors import InvalidInput
from ..validation.secret_scan import refuse_secrets
from ..versions import minor, plain, tag_of
from .extensions import disagreements, wish
from .factory import computed, images
from .nvidia import mismatches
from .schematic import Schematic, canonical

_FIELD = "talosConfig.schematic"
_ID = re.compile(r"/([0-9a-f]{64})(?:[:@]|$)")


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """``installer`` "" = the template says it; ``extensions`` None = it is not known what is in the image."""

    installer: str
    extensions: tuple[str, ...] | None

    def release(self, otherwise: str) -> str:
        """The Talos release that nodes will run, by the image's tag; ``otherwise`` where that does not tell."""
        tag = tag_of(self.installer)
        return plain(tag) if (minor(tag) or (0, 0))[0] == 1 else otherwise  # a registry of one's own may number images otherwise


def image_of(schematic: Schematic | None, image: str, talos_version: str) -> Image:
    """The image that nodes of a class install. A schematic without ``image`` is made by the public Image Factory.

    InvalidInput when the reference and the content are two images, or the content cannot be numbered here.
    """
    if schematic is None:
        return Image(image, None)
    number, named = computed(schematic), _ID.search(image)
    if not image and number is None:
        raise InvalidInput(
            f"{_FIELD}: its id cannot be computed here, because a value in it may have to be quoted.",
            remedy="Let the module talos_schematic number it, and write the installer's name into talosConfig.image, too.",
        )
    if number is not None and named is not None and named[1] != number:
        raise InvalidInput(
            f"talosConfig.image is made of schematic {named[1]}, and {_FIELD} has the id {number}: they are two images.",
            remedy="Leave one of the two out, or write the installer that talos_schematic names for this schematic.",
        )
    return Image(image or images(number or "", talos_version).installer, tuple(extensions_of(schematic)))


def ordered_schematic(schematic: Schematic | None, image: str, talos_version: str) -> str:
    """The number of the schematic that nodes of a class run, "" when neither its reference nor its content tells."""
    try:
        match = _ID.search(image_of(schematic, image, talos_version).installer)
    except InvalidInput:  # it was refused before anything was rented, or the class was changed since
        return ""
    return match[1] if match else ""


def extensions_of(schematic: Schematic) -> list[str]:
    """The official extensions of a schematic, by their whole names."""
    systems = (schematic.get("customization") or {}).get("systemExtensions") or {}
    return [wish(str(extension)).name for extension in systems.get("officialExtensions") or ()]


def schematic_problems(
    schematic: Schematic, image: str, talos_version: str, *, models: t.Sequence[str] = (), tailscale: bool = True
) -> list[str]:
    """Why a class's schematic cannot serve its nodes, one sentence each: secrets, unknown fields, extensions that do not belong
    together, GPUs (``models``) without their driver, no way into the mesh. Whether other extensions exist only the factory knows."""
    warnings = []
    try:
        refuse_secrets(schematic)
        canonical(schematic, str)  # its form is looked at before its parts are
        names = extensions_of(schematic)
        image_of(schematic, image, talos_version)
    except InvalidInput as error:
        return [f"{_FIELD}: {problem}" for problem in error.problems] or [str(error)]
    short = [name for name in names if name not in schematic["customization"]["systemExtensions"]["officialExtensions"]]
    if short:
        warnings.append(f"the Image Factory wants whole names: {', '.join(short)}.")
    warnings += [*disagreements(names), *mismatches(names, models, talos_version)]
    if tailscale and "siderolabs/tailscale" not in names:
        warnings.append("there is no extension siderolabs/tailscale in it, so nodes could not enter the mesh.")
    return [f"{_FIELD}: {problem}" for problem in warnings]


# ---- installer images: which of them can make a GPU node (S0-21)


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
