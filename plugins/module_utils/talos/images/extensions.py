# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""System extensions of a Talos image: which exist for a release, and which belong together (S4-04, N-03)."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing as t

from ..releases.tables import TRACKS
from ..spec import plain

_OWNER = "siderolabs/"
_REFERENCE = re.compile(r"(?:[a-z0-9.:-]+/)?siderolabs/([a-z0-9-]+):(\S+)")
_NVIDIA = re.compile(
    r"(?:siderolabs/)?"
    r"(nvidia-open-gpu-kernel-modules|nonfree-kmod-nvidia|nvidia-container-toolkit|nvidia-fabricmanager)-([a-z][a-z0-9-]*)"
)
_PARTS = ("nvidia-container-toolkit", "nvidia-fabricmanager")
MODULES = ("nvidia-open-gpu-kernel-modules", "nonfree-kmod-nvidia")


@dataclasses.dataclass(frozen=True, slots=True)
class Extension:
    """An official extension of one release: ``name`` "siderolabs/tailscale", ``version`` its tag ("1.102.2")."""

    name: str
    version: str

    @classmethod
    def from_reference(cls, name: str, reference: str) -> Extension:
        """Of an image reference ("ghcr.io/siderolabs/tailscale:1.102.2@sha256:…")."""
        return cls(name, reference.partition("@")[0].rsplit("/", 1)[-1].partition(":")[2])


@dataclasses.dataclass(frozen=True, slots=True)
class WantedExtension:
    """What the user wrote: the ``name`` of an extension, and the ``version`` it must have ("" = that of the release)."""

    name: str
    version: str = ""


def spec(text: str) -> WantedExtension:
    """``tailscale``, ``siderolabs/tailscale`` or a whole reference (``ghcr.io/siderolabs/tailscale:1.102.2``)."""
    words = text.strip()
    reference = _REFERENCE.fullmatch(words.partition("@")[0])
    if reference:
        return WantedExtension(_OWNER + reference[1], reference[2])
    return WantedExtension(words if "/" in words else _OWNER + words)


def track_of(name: str) -> str:
    """The driver track that an extension of NVIDIA's belongs to ("production"), "" for every other extension."""
    match = _NVIDIA.fullmatch(name)
    return match[2] if match else ""


def missing(specs: t.Sequence[WantedExtension], official: t.Sequence[Extension], talos_version: str) -> list[str]:
    """A sentence for each extension that the release does not have, or has in another version."""
    versions = {extension.name: extension.version for extension in official}
    sentences = []
    for extension in specs:
        if extension.name not in versions:
            sentences.append(
                f"{extension.name} is not an official extension of Talos {plain(talos_version)}{_near(extension.name, versions)}."
            )
        elif extension.version and plain(extension.version) != plain(versions[extension.name]):
            sentences.append(
                f"{extension.name} is {versions[extension.name]} in Talos {plain(talos_version)}, not {extension.version}. "
                "An extension fits one release only; leave its version out, or take the Talos release that it was made for."
            )
    return sentences


def _near(name: str, names: t.Collection[str]) -> str:
    tracks = [extension for extension in names if extension.startswith(name + "-")]
    bare = {extension.rpartition("/")[2]: extension for extension in names}
    close = tracks or [bare[match] for match in difflib.get_close_matches(name.rpartition("/")[2], bare, n=2, cutoff=0.7)]
    return f"; it has {', '.join(sorted(close))}" if close else ""


def disagreements(names: t.Collection[str]) -> list[str]:
    """What does not work together among NVIDIA's extensions, one sentence each."""
    parts: dict[str, set[str]] = {}
    sentences = []
    for name in names:
        match = _NVIDIA.fullmatch(name)
        if match:
            parts.setdefault(match[1], set()).add(match[2])
        elif re.match(r"siderolabs/n(vidia|onfree-kmod-nvidia)", name) and name != "siderolabs/nvidia-gdrdrv-device":
            near = difflib.get_close_matches(name.removeprefix(_OWNER), (*MODULES, *_PARTS), n=1, cutoff=0.5)
            hint = f"; write {' or '.join(f'{near[0]}-{track}' for track in TRACKS)}" if near else ""
            sentences.append(f"{name} is not an extension of NVIDIA's in any Talos release that is known here{hint}.")
    if not parts:
        return sentences
    tracks = set().union(*parts.values())
    if len(tracks) > 1:
        count, named = "two" if len(tracks) == 2 else len(tracks), " and ".join(sorted(tracks))
        sentences.append(f"NVIDIA's extensions are of {count} tracks, {named}: driver and libraries would differ. Take one.")
    modules = [module for module in MODULES if module in parts]
    if len(modules) > 1:
        sentences.append("Both of NVIDIA's kernel modules are listed, the open and the proprietary ones: take one of them.")
    track = sorted(tracks)[0]
    if not modules:
        sentences.append(f"{', '.join(sorted(parts))} without kernel modules drives no GPU: add {MODULES[0]}-{track}.")
    if "nvidia-container-toolkit" not in parts:
        sentences.append(
            f"{', '.join(modules or sorted(parts))} alone gives no GPU to containers: add nvidia-container-toolkit-{track}."
        )
    return sentences
