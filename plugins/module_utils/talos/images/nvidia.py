# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of NVIDIA's drivers a GPU needs, and what a node must have for it (S4-04, S4-29).

The open kernel modules drive Turing and all later generations, and nothing older; Blackwell is driven by them alone. Pascal and Volta
need the proprietary modules of the LTS track. Maxwell and Kepler are not served.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import typing as t

from ...core.errors import InvalidInput
from ...planner.offers.gpu_models import canonical, suggestions, vendor
from ..releases.tables import LTS, NEW_FEATURE, PRODUCTION, UPGRADE, minor, tables
from ..spec import plain, tag_of
from ..validation.secret_scan import refuse_secrets
from .extensions import MODULES, disagreements, spec, track_of
from .factory import computed, images
from .schematic import Schematic, canonical_text

OPEN, PROPRIETARY = MODULES
KERNEL_MODULES = ("nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset")
_LAST_LEGACY = 580  # the last branch that knows Pascal and Volta
_FIRST_BLACKWELL = 570


class Generation(enum.Enum):
    """Of NVIDIA's GPUs, as far as drivers tell them apart."""

    OLD = "Kepler or Maxwell"
    LEGACY = "Pascal or Volta"
    TURING = "Turing, Ampere, Ada or Hopper"
    BLACKWELL = "Blackwell"


_PATTERNS = (
    (Generation.OLD, r"K\d+c?|M\d+|GTX[79]\d+(Ti)?|GTXTITANX|QUADRO-[KM]\d+"),
    (Generation.LEGACY, r"P\d+(-\d+)?|V100(-.+)?|GTX10\d+(Ti)?|TITANX-PASCAL|TITANXp|TITANV(-CEO)?|QUADRO-(G?P|GV)\d+"),
    (Generation.BLACKWELL, r"G?B[23]00|RTX50\d+(Ti)?|RTXPRO\d+.*"),
)
_GRACE = re.compile(r"G[HB]\d+")  # GPUs on a board with an Arm CPU
_NVSWITCH = re.compile(r"(A100|H100|A800|H200)(-SXM)?|B[23]00")


@dataclasses.dataclass(frozen=True, slots=True)
class Driver:
    """``kind`` OPEN or PROPRIETARY, ``track`` "production", "lts" or "new-feature", ``branch`` of the driver (580)."""

    kind: str
    track: str
    branch: int

    def extensions(self, *, fabric_manager: bool = False) -> tuple[str, ...]:
        """The official extensions that it consists of, sorted."""
        names = [f"{self.kind}-{self.track}", f"nvidia-container-toolkit-{self.track}"]
        names += [f"nvidia-fabricmanager-{self.track}"] if fabric_manager else []
        return tuple(sorted(f"siderolabs/{name}" for name in names))


def generation(model: str) -> Generation | None:
    """The generation of a canonical model name; None for AMD's cards and names that are not known."""
    if vendor(model) != "nvidia":
        return None
    return next((candidate for candidate, pattern in _PATTERNS if re.fullmatch(pattern, model)), Generation.TURING)


def driver_for(models: t.Sequence[str], talos_version: str, track: str = "") -> Driver:
    """The one driver with which an image of ``talos_version`` drives all of ``models`` (as people write them).

    ``track`` "" takes production where it fits (lts for the proprietary modules), else the other of the two; new-feature is taken only by
    its name. InvalidInput names each model that no driver, or not the same driver, fits.
    """
    branches = tables().drivers(minor(talos_version))
    if not branches:
        raise InvalidInput(tables().unknown_release(talos_version), remedy=UPGRADE)
    if track and track not in branches:
        raise InvalidInput(
            f"Talos {talos_version} has no driver track {track}.", remedy=f"It has {', '.join(sorted(branches))}. {UPGRADE}"
        )
    named = [(model, canonical(model)) for model in models]
    problems = [_unknown(name) for name, model in named if model is None]
    judged: list[tuple[str, Generation]] = []
    for model in dict.fromkeys(model for _text, model in named if model is not None):
        gpu_generation = generation(model)
        if gpu_generation is None:
            problems.append(f"{model} is not made by NVIDIA.")
        elif gpu_generation is Generation.OLD:
            problems.append(
                f"{model} ({gpu_generation.value}) is too old for the drivers of Talos images. Take a Pascal card or newer."
            )
        else:
            judged.append((model, gpu_generation))
    legacy = [model for model, gpu_generation in judged if gpu_generation is Generation.LEGACY]
    blackwell = [model for model, gpu_generation in judged if gpu_generation is Generation.BLACKWELL]
    if legacy and blackwell:
        problems.append(
            f"{', '.join(blackwell)} need NVIDIA's open kernel modules and {', '.join(legacy)} the proprietary ones, "
            "and an image has one of them. Make two classes, each with an image of its own."
        )
    if problems:
        raise InvalidInput("No driver fits these GPUs.", problems=problems)
    kind, of_kind = PROPRIETARY if legacy else OPEN, legacy or [model for model, _found in judged]
    fitting = {name: branch for name, branch in branches.items() if not _why_not(of_kind, kind, branch)}
    if track and track not in fitting:
        raise InvalidInput(
            f"Track {track} of Talos {talos_version} has driver {branches[track]}, {_why_not(of_kind, kind, branches[track])}.",
            remedy=f"Take {' or '.join(fitting)}." if fitting else _OTHER_RELEASE,
        )
    preferred = (LTS, PRODUCTION) if kind == PROPRIETARY else (PRODUCTION, LTS)
    chosen = track or next((name for name in preferred if name in fitting), "")
    if not chosen:
        only = f"Only track {NEW_FEATURE} does; name it." if NEW_FEATURE in fitting else _OTHER_RELEASE
        raise InvalidInput(f"No driver of Talos {talos_version} fits {', '.join(of_kind)}.", remedy=only)
    return Driver(kind, chosen, branches[chosen])


_OTHER_RELEASE = "Take another Talos release (docs/reference/releases.md lists their drivers)."


def _unknown(text: str) -> str:
    near = suggestions(text)
    return f"{text!r} is not a known GPU model" + (f"; did you mean {near[0]}?" if near else ".")


def _why_not(models: t.Sequence[str], kind: str, branch: int) -> str:
    """Why a driver branch does not drive these models, "" if it does."""
    if kind == PROPRIETARY:
        return f"which no longer knows {', '.join(models)}" if branch > _LAST_LEGACY else ""
    blackwell = [model for model in models if generation(model) is Generation.BLACKWELL]
    if blackwell and branch < _FIRST_BLACKWELL:
        return f"which does not know {', '.join(blackwell)} yet"
    return ""


def mismatches(extensions: t.Collection[str], models: t.Sequence[str], talos_version: str) -> list[str]:
    """Why an image with these extensions cannot drive these GPUs (canonical or as people write them); nothing if it can.

    Models that are not NVIDIA's, or not known, are not judged.
    """
    names = [extension.removeprefix("siderolabs/") for extension in extensions]
    branches = tables().drivers(minor(talos_version))
    reasons = track_problems(names, talos_version)
    for text in models:
        model = canonical(text)
        gpu_generation = generation(model) if model else None
        if model is None or gpu_generation is None:
            continue
        if gpu_generation is Generation.OLD:
            reasons.append(f"{model} ({gpu_generation.value}) is too old for the drivers of Talos images.")
            continue
        present = [(kind, name.removeprefix(f"{kind}-")) for kind in MODULES for name in names if name.startswith(f"{kind}-")]
        wanted = PROPRIETARY if gpu_generation is Generation.LEGACY else OPEN
        if not present:
            reasons.append(f"{model} needs {wanted}, and the image has no driver of NVIDIA.")
        for kind, track in present:
            if kind != wanted and gpu_generation is not Generation.TURING:
                reasons.append(f"{model} ({gpu_generation.value}) needs {wanted}, and the image has {kind}-{track}.")
                continue
            if track not in branches:
                continue  # track_problems has it
            branch = branches[track]
            why = _why_not([model], PROPRIETARY if gpu_generation is Generation.LEGACY else OPEN, branch)
            if why:
                reasons.append(f"The image has {kind}-{track}, driver {branch} in Talos {talos_version}, {why}.")
    return list(dict.fromkeys(reasons))


def track_problems(names: t.Iterable[str], talos_version: str) -> list[str]:
    """Why tracks of NVIDIA's extensions are not those of the release, one sentence each; a release without a row is one."""
    branches = tables().drivers(minor(talos_version))
    tracks = sorted({track for name in names if (track := track_of(name))})
    if not tracks:
        return []
    if not branches:
        return [f"{tables().unknown_release(talos_version)} {UPGRADE}"]
    have = ", ".join(sorted(branches))
    return [
        f"Talos {plain(talos_version)} has no driver track {track}; it has {have}. {UPGRADE}"
        for track in tracks
        if track not in branches
    ]


def needs_fabric_manager(model: str, gpu_count: int | None) -> bool:
    """Whether the GPUs sit on a board with NVSwitches, where nothing runs without the fabric manager."""
    return (gpu_count or 0) >= 8 and bool(_NVSWITCH.fullmatch(canonical(model) or ""))


def kernel_modules(model: str) -> tuple[str, ...]:
    """The kernel modules that a node of this GPU has to load: extensions bring them and do not load them."""
    return (*KERNEL_MODULES, "ib_umad") if re.fullmatch(r"B[23]00", model) else KERNEL_MODULES


def architecture(models: t.Sequence[str]) -> str | None:
    """The CPU that these GPUs come with where that is certain: "arm64" for Grace boards; None otherwise."""
    names = [canonical(model) or "" for model in models]
    return "arm64" if names and all(_GRACE.fullmatch(name) for name in names) else None


# ---- the Talos image of a class: by its reference, by its content (a schematic), or both. Asks nobody; see ``factory`` for that

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
    return [spec(str(extension)).name for extension in systems.get("officialExtensions") or ()]


def schematic_problems(
    schematic: Schematic, image: str, talos_version: str, *, models: t.Sequence[str] = (), tailscale: bool = True
) -> list[str]:
    """Why a class's schematic cannot serve its nodes, one sentence each: secrets, unknown fields, extensions that do not belong
    together, GPUs (``models``) without their driver, no way into the mesh. Whether other extensions exist only the factory knows."""
    warnings = []
    try:
        refuse_secrets(schematic)
        canonical_text(schematic, str)  # its form is looked at before its parts are
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
        yield f"{image} is not an installer of the Image Factory: factory.talos.dev/metal-installer/<64 hex digits>:v<version>."
    elif not tag and "@" not in image:
        yield f"{image} has no version; end it with :v<Talos version>."
    elif tag in ("latest", "main"):
        yield f"{image} moves with each release; end it with :v<Talos version>."
