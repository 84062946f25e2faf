# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence files: ``<state_dir>/evidence/<claim>-<time>.json`` for programs and the same as ``.txt`` for people.

They hold no secret, are readable by their owner alone, at most a quarter of a megabyte each, and only the newest two hundred stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import typing as t

from ...core.events import jsonable
from ...core.files import state_folder
from ...core.redact import redact, redact_all
from ...core.task import Task
from ...model import Claim
from ..facts import Findings
from ..rules import Diagnosis

KEPT = 200
BIGGEST = 250_000  # bytes


def folder_of(task: Task) -> str:
    """Where this user's evidence lies."""
    return os.path.join(state_folder(task.params), "evidence")


def save(task: Task, claim: Claim, findings: Findings, diagnosis: Diagnosis, lines: t.Sequence[str]) -> str:
    """Write both files; the path of the JSON one, empty (with a warning) when that cannot be done: evidence must not fail a run."""
    folder = folder_of(task)
    content: dict[str, t.Any] = {
        "version": 1,
        "claim": claim.name,
        "pool": claim.pool,
        "cloud": claim.cloud,
        "region": claim.offer.cloud_region or claim.offer.region,
        "instance_type": claim.offer.instance_type,
        "host": claim.offer.host_id,
        "price_hour": str(claim.price),
        "diagnosis": dataclasses.asdict(diagnosis),
        "findings": dataclasses.asdict(findings),
    }
    path = os.path.join(folder, f"{claim.name}-{findings.now:%Y%m%dT%H%M%SZ}.json")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _write(path, _bounded(content))
        _write(path.removesuffix(".json") + ".txt", redact("\n".join((*lines, "", "looked at:", *diagnosis.looked_at, ""))))
        prune(folder)
    except OSError as error:
        task.warn(f"{claim.name}: its evidence could not be saved in {folder}: {error.strerror}")
        return ""
    return path


def prune(folder: str, kept: int = KEPT) -> None:
    """Remove all but the newest ``kept`` pairs."""
    entries = [entry for entry in os.scandir(folder) if entry.name.endswith(".json")]
    for entry in sorted(entries, key=_written, reverse=True)[kept:]:
        for path in (entry.path, entry.path.removesuffix(".json") + ".txt"):
            with contextlib.suppress(FileNotFoundError):  # another run may remove it, too
                os.remove(path)


def _written(file: os.DirEntry[str]) -> float:
    """When it was written; what has gone meanwhile counts as old."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _bounded(content: dict[str, t.Any]) -> str:
    """The JSON text; the oldest half of console and logs goes until it is small enough, then the Node's annotations."""
    while True:
        text = json.dumps(redact_all(jsonable(content)), indent=1, sort_keys=True) + "\n"
        findings = content["findings"]
        console, logs = findings.get("console") or (), findings.get("service_logs") or {}
        node = findings.get("node") or {}
        if len(text.encode()) <= BIGGEST or not (console or any(logs.values()) or node.get("annotations")):
            return text
        if console or any(logs.values()):
            findings["console"] = console and _newest_half(console)
            findings["service_logs"] = {name: _newest_half(lines) for name, lines in logs.items()}
        else:
            node["annotations"] = {}  # others may have put anything there


def _newest_half(lines: t.Sequence[str]) -> t.Sequence[str]:
    return lines[(len(lines) + 1) // 2 :]


def _write(path: str, text: str) -> None:
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)
