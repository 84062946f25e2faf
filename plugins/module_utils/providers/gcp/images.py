# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of Talos at Google: made of an archive in a bucket, which the controller brings there from the Image Factory, or which lies there.

An image is ours by its name and its labels together. The operation that makes one can be DONE and failed; then nothing was made.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
import uuid
from decimal import Decimal

from ...core import errors
from ...core.http import path_segment
from ..disk_images import FAMILY, Archive, Begun, DiskImage, ImageState, WantedImage, read_name
from .api import Calls, is_absent, operation_error
from .records import MANAGED, labels_of, last, marks_of, moment
from .storage import StorageBucket, check_bucket

_STATES = {"PENDING": ImageState.PENDING, "READY": ImageState.READY, "FAILED": ImageState.FAILED}
_GONE = "DELETING"
_CREATE_TIMEOUT = 120.0
_FEATURES = ("VIRTIO_SCSI_MULTIQUEUE", "GVNIC", "UEFI_COMPATIBLE")
_SOURCE = re.compile(r"gs://([^/]+)/([^\s?#]+)")
_ROLE = "It needs Compute Storage Admin, or Compute Instance Admin (v1) and the permissions compute.images.create, .delete, .get and .list."


def read_source(source: str) -> tuple[str, str]:
    """StorageBucket and object of ``gs://bucket/object``. InvalidInput for anything else."""
    found = _SOURCE.fullmatch(source)
    if found is None:
        raise errors.InvalidInput(
            f"gcp: {source!r} must be an object of a bucket.", remedy="Write it as gs://BUCKET/OBJECT.", field="source"
        )
    check_bucket(found[1])
    return found[1], found[2]


class GcpImages:
    """The images of one project. ``bucket``: where the archive goes; None = ``source`` says where it lies already, and it stays there."""

    platform, setting, dots = "gcp", "talosImage", False
    gigabyte_month, price_basis = Decimal("0.05"), "unverified"
    list_delay = 0

    def __init__(
        self,
        calls: Calls,
        project: str,
        *,
        bucket: StorageBucket | None,
        source: str = "",
        archive_of: t.Callable[[WantedImage], Archive],
        tell: t.Callable[[str], None],
    ) -> None:
        self._calls, self._project = calls, project
        self._bucket, self._source = bucket, source
        self._archive_of, self._tell = archive_of, tell

    def images(self) -> list[DiskImage]:
        operation, expect = "GET /global/images", self._calls.api.expect
        entries = [expect(entry, dict, operation, "an image") for entry in self._calls.pages("/global/images", "compute#imageList")]
        found = [self._read(entry, operation) for entry in entries]
        return [image for image in found if image is not None]

    def _read(self, entry: dict[str, t.Any], operation: str) -> DiskImage | None:
        """None for an image that is not ours, or is being deleted."""
        expect = self._calls.api.expect
        name = expect(entry.get("name") or None, str, operation, "name of an image")
        word = expect(entry.get("status") or None, str, operation, f"status of {name}")
        labels = expect(entry.get("labels", {}), dict, operation, f"labels of {name}")
        read, marks = read_name(name), marks_of(labels)
        if read is None or word == _GONE or labels.get(MANAGED) != "true":
            return None
        of, serial = read
        if marks.get("talos") != of.version or not marks.get("schematic", "").startswith(of.schematic):
            return None
        if marks.get("cluster", "") != of.cluster:
            return None
        size = str(entry.get("archiveSizeBytes") or "")
        return DiskImage(
            id=name,
            name=name,
            state=_STATES.get(word, ImageState.UNKNOWN),
            of=dataclasses.replace(of, schematic=marks["schematic"]),
            serial=serial,
            created=moment(entry.get("creationTimestamp")),
            size=int(size) if size.isdecimal() and int(size) > 0 else None,
            link=f"projects/{self._project}/global/images/{name}",
            state_word=word,
        )

    def used(self) -> frozenset[str]:
        """A disk names the image that it was made of."""
        operation, expect = "GET of each disk", self._calls.api.expect
        disks = [
            expect(entry, dict, operation, "a disk")
            for _place, entry in self._calls.aggregated("disks", "compute#diskAggregatedList")
        ]
        return frozenset(last(entry.get("sourceImage")) for entry in disks) - {""}

    def begin(self, wanted: WantedImage, serial: int) -> Begun:
        name = wanted.name(serial)
        if self.look(Begun(name)) is not None:
            return Begun(name)
        source = self._source if self._bucket is None else self._brought(self._bucket, wanted)
        marks = {"talos": wanted.version, "schematic": wanted.schematic, **({"cluster": wanted.cluster} if wanted.cluster else {})}
        body = {
            "name": name,
            "family": FAMILY,
            "rawDisk": {"source": f"https://storage.googleapis.com/{source.removeprefix('gs://')}"},
            "guestOsFeatures": [{"type": feature} for feature in _FEATURES],
            "labels": {MANAGED: "true", **labels_of(marks)},
        }
        call = "POST /global/images"
        try:
            operation = self._calls.send(
                "POST", "/global/images", once=True, json=body, params={"requestId": str(uuid.uuid4())}, timeout=_CREATE_TIMEOUT
            )
        except errors.Conflict as error:
            if error.code != "alreadyExists" or self.look(Begun(name)) is None:
                raise
            return Begun(name)
        except errors.Forbidden as error:
            stays = f" The archive lies in gs://{source}, is billed, and serves the next run." if self._bucket is not None else ""
            error.remedy = _ROLE + stays
            raise
        return Begun(name, self._calls.operation_name(operation, call))

    def _brought(self, bucket: StorageBucket, wanted: WantedImage) -> str:
        """The object that the archive lies in. One that is whole already is used: only what is not there is sent."""
        name, archive = self._object(wanted), self._archive_of(wanted)
        try:
            if bucket.size_of(name) != archive.size:
                self._tell(f"image {wanted.name()}: {archive.size} bytes go to gs://{bucket.name}/{name}")
                bucket.upload(
                    name,
                    archive.read,
                    archive.size,
                    lambda kept: self._tell(f"image {wanted.name()}: {kept * 100 // archive.size} % is there"),
                )
        finally:
            archive.close()
        return f"{bucket.name}/{name}"

    def _object(self, wanted: WantedImage) -> str:
        return f"{wanted.name()}.raw.tar.gz"

    def look(self, begun: Begun) -> DiskImage | None:
        if begun.operation and not self._is_done(begun):
            of, serial = t.cast("tuple[WantedImage, int]", read_name(begun.id))
            return DiskImage(begun.id, begun.id, ImageState.PENDING, of, serial, None, None, "", "PENDING")
        entry = self._calls.find(f"/global/images/{path_segment(begun.id, 'image')}")
        if entry is None:
            return None
        image = self._read(entry, "GET of an image")
        if image is None and entry.get("status") != _GONE:
            raise errors.Conflict(
                f"gcp: there is an image {begun.id} without the labels of this collection, so it is not changed.",
                remedy="Rename or remove it.",
                service="gcp",
            )
        return image

    def _is_done(self, begun: Begun) -> bool:
        """NeverReady when it is, and has failed."""
        path = f"/global/operations/{path_segment(begun.operation, 'operation')}"
        operation = self._calls.send("GET", path)
        if operation.get("status") != "DONE":
            return False
        failure = operation_error(operation, "POST /global/images")
        if failure is not None:
            raise errors.NeverReady(f"gcp: {begun.id} was not made: {failure.message}", cloud="gcp", code=failure.code)
        return True

    def remove(self, image: DiskImage) -> None:
        path = f"/global/images/{path_segment(image.id, 'image')}"
        try:
            self._calls.send("DELETE", path, idempotent=True)
        except errors.NotFound as error:
            if not is_absent(error, path):
                raise
        except errors.Forbidden as error:
            error.remedy = _ROLE
            raise

    def clean(self, wanted: WantedImage) -> bool:
        return self._bucket is not None and self._bucket.delete(self._object(wanted))

    def close(self) -> None:
        self._calls.close()
        if self._bucket is not None:
            self._bucket.close()
