# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Image Factory: schematics, what it has for a Talos release, and where its images are."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import typing as t
from urllib.parse import urlsplit

from ...core import errors
from ...core.http import Api
from ...core.rate_limit import RetryPolicy
from ...core.task import Task
from ..spec import plain
from .extensions import Extension
from .schematic import Schematic, canonical_text

if t.TYPE_CHECKING:
    import httpx

    from ...core.clock import Clock

PUBLIC = "https://factory.talos.dev"
_PUBLIC_PXE = "https://pxe.factory.talos.dev"
_ID = re.compile(r"[0-9a-f]{64}")
# platform -> how the file of its disk image ends; "" = it boots from the network or an ISO only
PLATFORMS: dict[str, str] = {
    "metal": "raw.zst", "nocloud": "raw.xz", "aws": "raw.xz", "gcp": "raw.tar.gz", "azure": "vhd.xz", "digital-ocean": "raw.gz",
    "openstack": "raw.xz", "hcloud": "raw.xz", "scaleway": "raw.zst", "upcloud": "raw.xz", "akamai": "raw.gz",
    "cloudstack": "raw.gz", "oracle": "qcow2", "exoscale": "qcow2", "opennebula": "raw.zst", "vmware": "ova", "vultr": "raw",
    "equinixMetal": "",
}  # fmt: skip
ARCHITECTURES = ("amd64", "arm64")


@dataclasses.dataclass(frozen=True, slots=True)
class Images:
    """References to what the factory makes of a schematic. ``disk`` is "" on platforms without a disk image."""

    installer: str
    pxe: str
    iso: str
    disk: str
    kernel: str
    initramfs: str
    cmdline: str


def images(
    schematic: str, version: str, *, url: str = PUBLIC, platform: str = "metal", arch: str = "amd64", secureboot: bool = False
) -> Images:
    """Where the images of schematic ``schematic`` (its id) and Talos ``version`` are. Asks nobody.

    InvalidInput for a platform or architecture that Talos has no image for.
    """
    if platform not in PLATFORMS:
        raise errors.InvalidInput(
            f"platform {platform!r}: Talos has no image for it.", remedy=f"It has them for {', '.join(PLATFORMS)}."
        )
    if arch not in ARCHITECTURES:
        raise errors.InvalidInput(f"The CPU {arch!r} must be amd64 or arm64.")
    root = url.rstrip("/")
    host = urlsplit(root).netloc
    secure = "-secureboot" if secureboot else ""
    release = f"v{plain(version)}"
    name = f"{platform}-{arch}{secure}"
    below = f"{root}/image/{schematic}/{release}"
    ending = PLATFORMS[platform]
    return Images(
        installer=f"{host}/{platform}-installer{secure}/{schematic}:{release}",
        pxe=f"{_PUBLIC_PXE if root == PUBLIC else root}/pxe/{schematic}/{release}/{name}",
        iso=f"{below}/{name}.iso",
        disk=f"{below}/{name}.{ending}" if ending else "",
        kernel=f"{below}/kernel-{arch}",
        initramfs=f"{below}/initramfs-{arch}.xz",
        cmdline=f"{below}/cmdline-{name}",
    )


class ImageFactory:
    """One Image Factory. It has no account; whoever knows an id can read that schematic.

    Raises ApiError and its kinds; BadShape for an answer that is not of the documented form.
    """

    def __init__(self, url: str = PUBLIC, *, transport: httpx.BaseTransport | None = None, clock: Clock | None = None) -> None:
        self.url = url.rstrip("/")
        self.api = Api("image factory", self.url, transport=transport, retry=RetryPolicy(tries=4), clock=clock)

    def close(self) -> None:
        self.api.close()

    def versions(self) -> tuple[str, ...]:
        """The Talos releases it makes images of, as it names them ("v1.13.9")."""
        return tuple(self._texts(self.api.get("/versions"), "GET /versions"))

    def extensions(self, version: str) -> tuple[Extension, ...]:
        """The official extensions of a release. InvalidInput when it has no such release, naming those that it has."""
        return tuple(Extension.from_reference(entry["name"], entry["ref"]) for entry in self._official(version, "extensions"))

    def overlays(self, version: str) -> tuple[str, ...]:
        """The overlays of a release, "name of image" each."""
        return tuple(f"{entry['name']} of {entry['image']}" for entry in self._official(version, "overlays", "image"))

    def known(self, schematic: str) -> str | None:
        """The text of a schematic, None when the factory does not know the id."""
        answer = self.api.call("GET", f"/schematics/{schematic}", ok=(404,))
        if answer.status == 404:
            return None
        if hashlib.sha256(answer.text.encode()).hexdigest() != schematic:
            raise self.api.bad_shape(f"GET /schematics/{schematic}", "the text is not the one that has this id")
        return answer.text

    def register(self, schematic: Schematic) -> tuple[str, str]:
        """Hand a schematic in; returns its id and the text that the factory made of it. The same content always gets the same id.

        Where the id can be computed here, the factory's answer must be the same: otherwise it read something else than was
        meant, and images of it would be other images. Raises ApiError then.
        """
        operation = "POST /schematics"
        answer = self.api.call("POST", "/schematics", json=dict(schematic), idempotent=True)
        body = self.api.expect(answer.json, dict, operation)
        number = self.api.expect(body.get("id"), str, operation, "id")
        text = body.get("schematic")
        if not _ID.fullmatch(number):
            raise self.api.bad_shape(operation, "its id must be 64 hex digits")
        wanted = computed(schematic)
        if wanted is not None and wanted != number:
            written = "\n".join(["", "It wrote:", text]) if isinstance(text, str) else ""
            raise errors.ApiError(
                f"image factory: it gave the schematic the id {number}, and the content as meant has the id {wanted}. "
                f"It read something else than was sent, so its images are not used.{written}",
                remedy="Look whether the factory is newer than this collection knows, and compare both texts.",
                service=self.api.service,
                expected=wanted,
                answered=number,
            )
        if not isinstance(text, str):  # older factories tell the id alone
            text = self.known(number)
            if text is None:
                raise self.api.bad_shape(operation, f"the id {number} it gave is unknown to it")
        elif hashlib.sha256(text.encode()).hexdigest() != number:
            raise self.api.bad_shape(operation, "its text and its id do not belong together")
        return number, text

    def _official(self, version: str, catalogue: str, *more: str) -> list[dict[str, str]]:
        release = f"v{plain(version)}"
        path = f"/version/{release}/{catalogue}/official"
        try:
            answer = self.api.get(path)
        except errors.NotFound:
            raise self._no_release(release) from None
        except errors.ServerError as error:
            if not re.fullmatch(r"v\d+\.\d+\.\d+(-[a-z]+\.\d+)?", release):  # the factory's word for a version it cannot read
                raise self._no_release(release) from error
            raise
        entries = self.api.expect(answer, list, f"GET {path}")
        for entry in entries:
            self.api.expect(entry, dict, f"GET {path}", "an entry")
            for field in ("name", "ref", *more):
                self.api.expect(entry.get(field), str, f"GET {path}", field)
        return t.cast("list[dict[str, str]]", entries)

    def _no_release(self, release: str) -> errors.InvalidInput:
        versions = self.versions()
        minor = release.rpartition(".")[0]
        near = [version for version in versions if version.startswith(minor + ".")] or list(versions)
        return errors.InvalidInput(
            f"Talos {release}: the Image Factory {self.url} makes no images of it.",
            remedy=f"It makes them of {', '.join(near[-3:])}." if near else "It makes none at all at the moment.",
        )

    def _texts(self, value: t.Any, operation: str) -> list[str]:
        return [self.api.expect(entry, str, operation, "an entry") for entry in self.api.expect(value, list, operation)]


def computed(schematic: Schematic) -> str | None:
    """The id, where it is certain without the factory; None where the factory might quote something."""
    try:
        return hashlib.sha256(canonical_text(schematic).encode()).hexdigest()
    except errors.InvalidInput as error:
        if error.details.get("uncertain"):
            return None
        raise


def open_factory(task: Task) -> ImageFactory:
    """The factory that a module is to use (option ``image_factory_url``)."""
    url = (task.params.get("image_factory_url") or PUBLIC).rstrip("/")
    return ImageFactory(url, transport=task.transport(url), clock=task.clock)
