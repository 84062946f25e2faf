# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Amounts as Kubernetes writes them."""

from __future__ import annotations

import decimal
import re
import typing as t

_FORM = re.compile(r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?\d+)?$")
_FACTOR = {"m": decimal.Decimal("0.001"), "": decimal.Decimal(1)}
_FACTOR |= {name: decimal.Decimal(1000) ** power for power, name in enumerate("kMGTPE", 1)}
_FACTOR |= {f"{name}i": decimal.Decimal(1024) ** power for power, name in enumerate("KMGTPE", 1)}


def quantity(value: t.Any) -> decimal.Decimal:
    """ "500m", "2Gi", 4 as a number. ValueError if it is no quantity."""
    found = _FORM.match(str(value))
    if found is None:
        raise ValueError(f"{value!r} is not a quantity")
    number, suffix = found[1], found[2] or ""
    if suffix in _FACTOR:
        return decimal.Decimal(number) * _FACTOR[suffix]
    return decimal.Decimal(number + suffix)
