# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A support bundle of a diagnosis: a tar.gz of everything that was seen, without secrets, for its owner alone."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import tarfile
import typing as t
from datetime import datetime

from ...core.errors import InvalidInput
from ...core.events import jsonable
from ...core.redact import redact_foreign
from ..gpus.facts import ClusterGpus, GpuCheck

_FOLDER = "tgp-diagnose"


def write_bundle(path: str, cluster: ClusterGpus, checks: t.Sequence[GpuCheck], table: t.Sequence[str], now: datetime) -> None:
    """Written beside and then renamed, so that a file of this name is always whole. InvalidInput when it cannot be written."""
    name = os.path.expanduser(path)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for inner, text in sorted(contents(cluster, checks, table).items()):
            data = redact_foreign(text).encode()
            entry = tarfile.TarInfo(f"{_FOLDER}/{inner}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(now.timestamp())
            archive.addfile(entry, io.BytesIO(data))
    try:
        handle = os.open(f"{name}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content.getvalue())
        os.replace(f"{name}.new", name)
    except OSError as error:
        raise InvalidInput(f"The support bundle {path} cannot be written: {error.strerror}.") from error


def contents(cluster: ClusterGpus, checks: t.Sequence[GpuCheck], table: t.Sequence[str]) -> dict[str, str]:
    """The files of the bundle by name: the table, the checks, all facts, and each log by itself."""
    files = {
        "table.txt": "\n".join((*table, "")),
        "checks.json": json.dumps([dataclasses.asdict(check) for check in checks], indent=1),
        "facts.json": json.dumps(_without_annotations(jsonable(dataclasses.asdict(cluster))), indent=1, sort_keys=True),
    }
    for pod in cluster.pods or ():
        files[f"pods/{pod.name}.log"] = "\n".join((*(pod.log or (f"not read: {pod.unread}",)), ""))
    for node in cluster.nodes:
        for service, lines in (node.system.logs if node.system is not None else {}).items():
            files[f"nodes/{node.node.name}/{service}.log"] = "\n".join((*lines, ""))
    return files


def _without_annotations(value: t.Any) -> t.Any:
    """Users and controllers put anything there, whole manifests with their environment included."""
    if isinstance(value, dict):
        return {key: _without_annotations(item) for key, item in value.items() if key != "annotations"}
    return [_without_annotations(item) for item in value] if isinstance(value, list) else value
