# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every cloud there is, by name. A cloud is a folder beside this file whose ``cloud.py`` has an ``ENTRY``; it is found by itself."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
import typing as t

from ..core import errors
from ..core.task import Task
from ..model import Capability, CloudChoice
from .base import Cloud, Entry, NodeReady, Wanted
from .gcp import cloud as gcp_cloud
from .lambda_ import cloud as lambda_cloud
from .paperspace import cloud as paperspace_cloud
from .runpod import cloud as runpod_cloud
from .vast import cloud as vast_cloud
from .vultr import cloud as vultr_cloud
from .webhook import cloud as webhook_cloud

_PACKED = (gcp_cloud, lambda_cloud, paperspace_cloud, runpod_cloud, vast_cloud, vultr_cloud, webhook_cloud)


def _discover() -> dict[str, Entry]:
    package = importlib.import_module(__name__.rpartition(".")[0])
    names = {module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg}
    names |= {packed.__name__.split(".")[-2] for packed in _PACKED}
    entries = (importlib.import_module(f".{name}.cloud", package.__name__).ENTRY for name in sorted(names))
    return {entry.name: entry for entry in entries}


ENTRIES: dict[str, Entry] = _discover()
CAPABILITIES: dict[str, Capability] = {name: entry.facts for name, entry in ENTRIES.items()}
CLOUDS_SPEC: dict[str, t.Any] = {name: options for entry in ENTRIES.values() for name, options in entry.spec.items()}


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_INDEX = {_key(alias): name for name, entry in ENTRIES.items() for alias in (name, *entry.aliases)}


def canonical_cloud(name: str) -> str | None:
    """The cloud that ``name`` means (``Lambda-Labs``, ``vast.ai``), None when it is none we know of."""
    return _INDEX.get(_key(name))


def cloud_suggestions(name: str) -> tuple[str, ...]:
    """Clouds whose name looks like ``name``, best first."""
    close = difflib.get_close_matches(_key(name), _INDEX, n=3, cutoff=0.6)
    return tuple(dict.fromkeys(_INDEX[key] for key in close))


def connect(
    cloud: str,
    task: Task,
    *,
    credential: str | None = None,
    choice: CloudChoice | None = None,
    node_ready: NodeReady | None = None,
    in_flight: t.Mapping[str, str] | None = None,
) -> Cloud:
    """The client of a cloud (any of its names). ``credential`` is a key found elsewhere (a Secret); options and environment win.

    Raises InvalidInput for an unknown cloud, Unauthorized when its key is nowhere.
    """
    name = canonical_cloud(cloud)
    if name is None:
        near = cloud_suggestions(cloud)
        raise errors.InvalidInput(
            f"There is no cloud {cloud!r}.",
            remedy=f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(ENTRIES)}.",
        )
    return ENTRIES[name].connect(Wanted(task, credential, choice, node_ready, in_flight))
