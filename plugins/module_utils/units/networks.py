# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks of both versions of IP, compared. The library's own comparison of an IPv4 with an IPv6 network is an error."""

from __future__ import annotations

import ipaddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def lies_in(inner: Network, outer: Network) -> bool:
    """Whether all of ``inner`` is part of ``outer``. No network of one version is part of one of the other."""
    if isinstance(inner, ipaddress.IPv4Network):
        return isinstance(outer, ipaddress.IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, ipaddress.IPv6Network) and inner.subnet_of(outer)


def overlap(one: Network, other: Network) -> bool:
    """Whether an address is in both."""
    return one.version == other.version and one.overlaps(other)
