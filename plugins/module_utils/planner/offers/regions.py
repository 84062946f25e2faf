# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Standard regions: one word for a part of the world, so that a wish can name a region without naming a cloud.

Form: ``<area>-<part>``, areas us, eu, asia, me, australia; parts are compass points. A cloud's region without a
standard word keeps its own. A wish may also
say ``asia-pacific`` for Asia's east and south with Australia, and an area for all of its parts (``us``).
"""

from __future__ import annotations

import difflib
import re
import typing as t
from types import MappingProxyType

_AREAS = {"us": "us", "eu": "eu", "europe": "eu", "asia": "asia", "me": "me", "australia": "australia"}
_PARTS = "north|south|east|west|central|northeast|northwest|southeast|southwest"
_PACIFIC = ("asia-east", "asia-northeast", "asia-southeast", "asia-south", "australia")
_WORDS = frozenset(
    {*_AREAS.values(), "asia-pacific", *(f"{area}-{part}" for area in _AREAS.values() for part in _PARTS.split("|"))}
)
_END = re.compile(r"-?\d+$")
_NUMBERED = re.compile(rf"({'|'.join(_AREAS)})-({_PARTS})-?\d*")


def standard_region(cloud_region: str, named: t.Mapping[str, str] = MappingProxyType({})) -> str:
    """The standard region of a cloud's own one (``europe-central-1`` → ``eu-central``), else the cloud's own word. ``named``: what the
    cloud's own words (lower case) mean where they do not say it themselves."""
    own = cloud_region.strip().lower()
    if own in named:
        return named[own]
    numbered = _NUMBERED.fullmatch(own)
    return f"{_AREAS[numbered[1]]}-{numbered[2]}" if numbered else own


def region_matches(wish: str, region: str, cloud_region: str) -> bool:
    """Whether an offer in ``region`` (standard) and ``cloud_region`` (the cloud's word) is in the region ``wish``;
    case is ignored."""
    wanted = wish.strip().lower()
    if wanted == "asia-pacific" and region.lower().startswith(_PACIFIC):
        return True
    if wanted in _AREAS and region.lower().startswith(f"{_AREAS[wanted]}-"):
        return True  # an area is all of its parts
    return bool(wanted) and wanted in (region.lower(), cloud_region.strip().lower())


def misspelt_region(wish: str, regions: t.Iterable[str]) -> tuple[str, ...]:
    """The words that the wish resembles, the nearest first, at most two; none when it is a standard word, of a form that clouds use
    (``us-west-2``), or one of ``regions``: words of clouds, with or without a number at their end (``us-tx`` for ``us-tx-3``)."""
    known = {region.strip().lower() for region in regions} - {""}
    wanted = wish.strip().lower()
    if _NUMBERED.fullmatch(wanted) or {wanted, _END.sub("", wanted)} & (known | _WORDS):
        return ()
    words = sorted(known | _WORDS)
    near = difflib.get_close_matches(wanted, words, 2, 0.8) or difflib.get_close_matches(_END.sub("", wanted), words, 2, 0.8)
    return tuple(near)
