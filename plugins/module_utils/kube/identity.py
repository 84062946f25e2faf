# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster id that is part of every name (L-1)."""

from __future__ import annotations

from ..core.errors import InvalidInput
from ..model.names import CLUSTER_ID
from .client import Kube


def cluster_id(kube: Kube | None, option: str | None = None) -> str:
    """The option if it is set (8 lower-case hex digits), else the first 8 of the UID of namespace kube-system."""
    if option:
        if not CLUSTER_ID.fullmatch(option):
            raise InvalidInput(f"cluster_id {option!r} is not 8 lower-case hexadecimal digits.", remedy="For example a1b2c3d4.")
        return option
    if kube is None:
        raise InvalidInput("Without a cluster to ask, cluster_id must be set.", remedy="Set it to 8 lower-case hex digits.")
    return kube.cluster_id()
