# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container image of one static program, as the archive that ``ctr images import`` reads."""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import tarfile
import typing as t

NAME = "example.test/idle:1"


def layer(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    """A tar file of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def archive(program: pathlib.Path, name: str = NAME) -> bytes:
    """The image ``name`` that runs ``program`` as /idle."""
    return of_layers([layer({"idle": program.read_bytes()}, 0o755)], {"Entrypoint": ["/idle"]}, name)


def of_layers(layers: t.Sequence[bytes], started: dict[str, t.Any], name: str) -> bytes:
    """The image ``name`` of tar files, one on the other; ``started``: how a container of it begins."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str, **more: t.Any) -> dict[str, t.Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content), **more}

    described = [blob(layer, "layer.v1.tar") for layer in layers]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": started,
        "rootfs": {"type": "layers", "diff_ids": [one["digest"] for one in described]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": described,
    }
    named = blob(json.dumps(manifest).encode(), "manifest.v1+json", annotations={"io.containerd.image.name": name})
    index = {"schemaVersion": 2, "manifests": [named]}
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}
    return layer(files)


def config_digest(archive: bytes) -> str:
    """By which a kubelet names the image of an archive that was imported."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as layout:

        def read(name: str) -> dict[str, t.Any]:
            return t.cast("dict[str, t.Any]", json.load(t.cast(t.IO[bytes], layout.extractfile(name))))

        manifest = read("index.json")["manifests"][0]["digest"].replace(":", "/")
        return str(read(f"blobs/{manifest}")["config"]["digest"])
