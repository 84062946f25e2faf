# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user of an instance module probably meant by a type, a GPU or a region that its cloud does not have."""

from __future__ import annotations

import difflib
import typing as t

from ..core.errors import InvalidInput
from ..model import Offer
from ..planner.offers.regions import misspelt_region


def no_such_type(message: str, wanted: str, names: t.Iterable[str], near: t.Sequence[str] = ()) -> InvalidInput:
    """The error for ``wanted``, which is none of ``names``: it says which of them are spelt alike, and all of them. ``near``: names
    known to be alike, before those that only look alike."""
    key, lower = wanted.strip().lower(), {one.lower(): one for one in sorted(names)}
    close = [lower[one] for one in difflib.get_close_matches(key, lower, 2, 0.8)]
    longer = [lower[one] for one in lower if key and one.startswith(key)]
    alike = list(dict.fromkeys([*near, *longer, *close]))[:2]
    meant = f"Did you mean {' or '.join(alike)}? " if alike else ""
    return InvalidInput(message, remedy=f"{meant}It has {', '.join(lower.values())}." if lower else meant.strip())


def check_region(cloud: str, wish: str, offers: t.Iterable[Offer], named: t.Iterable[str]) -> None:
    """InvalidInput for a region that ``cloud`` does not have and that resembles one: of its offers, or of ``named``, its words for regions."""
    offered = [word for one in offers for word in (one.region, one.cloud_region)]
    if near := misspelt_region(wish, [*offered, *named]):
        raise InvalidInput(f"{cloud} has no region {wish!r}.", remedy=f"Did you mean {' or '.join(near)}?")
