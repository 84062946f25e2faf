# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One name per cloud, whatever a document or an option calls it."""

from __future__ import annotations

import difflib
import re

_NAMES: dict[str, tuple[str, ...]] = {
    "vast": ("vastai",),
    "runpod": ("runpodio",),
    "lambda": ("lambdalabs", "lambdacloud", "lambdaai"),
    "paperspace": ("digitaloceanpaperspace", "paperspacecom"),
    "webhook": ("webhooks",),
}


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_INDEX = {_key(alias): cloud for cloud, aliases in _NAMES.items() for alias in (cloud, *aliases)}


def canonical_cloud(name: str) -> str | None:
    """The cloud that ``name`` means (``Lambda-Labs``, ``vast.ai``), None when it is none we know of."""
    return _INDEX.get(_key(name))


def known_clouds() -> tuple[str, ...]:
    """All canonical names."""
    return tuple(_NAMES)


def cloud_suggestions(name: str) -> tuple[str, ...]:
    """Clouds whose name looks like ``name``, best first."""
    close = difflib.get_close_matches(_key(name), _INDEX, n=3, cutoff=0.6)
    return tuple(dict.fromkeys(_INDEX[found] for found in close))
