# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine configurations that the user supplies for a machine: read, checked, and kept out of every text."""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ...core.errors import InvalidInput
from ...core.redact import register
from ...talos.template import Document, at, machine_document, parse
from ...talos.validation.validate import MODES, check
from ..payload import boot_mode

_SECRET = re.compile(r"(token|secret|auth_?key|api_?key|private_?key|preshared_?key|password|passphrase|^auth)$", re.IGNORECASE)
_LONG = 12  # characters; what is shorter is a word


@dataclasses.dataclass(frozen=True, slots=True)
class GivenConfig:
    """``text`` as it was given, byte for byte; it is a secret. ``mode`` is metal or cloud, by whether it says where to install."""

    text: str = dataclasses.field(repr=False)
    documents: list[Document] = dataclasses.field(repr=False)
    mode: str
    warnings: tuple[str, ...] = ()

    def checked(self, mode: str, talos_version: str) -> tuple[str, ...]:
        """What a machine in this mode and of this version would refuse; "" = not known."""
        more = {"talos_version": talos_version.removeprefix("v")} if talos_version else {}
        return check(self.documents, mode=mode if mode in MODES else self.mode, **more).errors


def given_config(entry: t.Mapping[str, t.Any], label: str, talos_version: str = "") -> GivenConfig:
    """The configuration of one entry with ``config`` (text) or ``config_file``. Its secrets are registered before anything can fail.

    Raises InvalidInput with every fault, when it is missing, unreadable, or none that a worker could use.
    """
    text = entry.get("config") or _file(entry.get("config_file"), label)
    if not text:
        raise InvalidInput(f"{label} has no configuration: give config or config_file.")
    documents = parse(text, f"the configuration of {label}")
    machine = machine_document(documents)
    register(*secrets_of(documents), *(cluster_id for cluster_id in (at(machine, "cluster.id"),) if isinstance(cluster_id, str)))
    if machine is None:
        raise InvalidInput(
            f"The configuration of {label} has no machine document (the one without kind), so Talos would go on waiting for one.",
            remedy="tgp.gpu.talos_config makes whole configurations.",
        )
    mode = boot_mode(documents)
    more = {"talos_version": talos_version} if talos_version else {}
    result = check(documents, mode=mode, **more)
    if result.errors:
        raise InvalidInput(f"Talos would not take the configuration of {label}.", problems=result.errors)
    return GivenConfig(text, documents, mode, result.warnings)


def _file(path: t.Any, label: str) -> str:
    if not path:
        return ""
    try:
        with open(os.path.expanduser(str(path)), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInput(f"The configuration of {label} cannot be read from {path}: {reason}.") from None


def secrets_of(value: t.Any, key: str = "") -> t.Iterator[str]:
    """Texts that stand where secrets stand in documents; of ``NAME=value`` entries the value."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from secrets_of(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from secrets_of(item, key)
    elif isinstance(value, str):
        if len(value) >= _LONG and (_SECRET.search(key) or "PRIVATE KEY" in value):
            yield value
        name, equals, rest = value.partition("=")
        if equals and len(rest) >= _LONG and _SECRET.search(name):
            yield rest
