# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pool says about machines for waiting pods (L-17)."""

from __future__ import annotations

import typing as t

from .reading import Reader


def scaling(spec: t.Mapping[str, t.Any], reader: Reader) -> dict[str, t.Any]:
    """The Pool's fields that they give, by name."""
    sliced = spec.get("timeSlicing") or {}
    return {
        "pack": spec.get("pack", "price"),
        "schedulers": tuple(spec.get("schedulers", ())),
        "scale_up_delay": reader.duration(spec.get("scaleUpDelay"), "spec.scaleUpDelay", 0),
        "slices": sliced.get("replicas", 1),
        "slices_renamed": sliced.get("renameByDefault", False),
    }
