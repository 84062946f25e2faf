# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what a machine was given by the rules of the system that it boots."""

from __future__ import annotations

import typing as t

from .cloud_init import read_cloud_init
from .payload import TALOS, Intent
from .talos_config import read_talos


def read(text: str | None, system: str, environment: t.Mapping[str, str] | None = None) -> Intent | None:
    """The intent in ``text`` for a machine that boots ``system``; None when it was given nothing. Raises :class:`Refused`.

    ``environment`` is what its cloud wrote into /etc/environment: a script may bring the rest of itself in there."""
    if not text or not text.strip():
        return None
    if system == TALOS:
        return read_talos(text)
    return read_cloud_init(text, environment or {})
