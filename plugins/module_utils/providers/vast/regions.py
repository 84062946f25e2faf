# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a host of Vast.ai stands: "Quebec, CA" as a standard region. The last word is the country, what comes before it a state or nothing."""

from __future__ import annotations

import typing as t

_US = {
    "us-east": "connecticut|delaware|district of columbia|florida|georgia|maine|maryland|massachusetts|new hampshire|new jersey|new york|"
    "north carolina|ohio|pennsylvania|rhode island|south carolina|vermont|virginia|west virginia|washington dc",
    "us-central": "illinois|indiana|iowa|kansas|kentucky|michigan|minnesota|missouri|nebraska|north dakota|south dakota|wisconsin|tennessee",
    "us-south": "alabama|arkansas|louisiana|mississippi|oklahoma|texas",
    "us-west": "alaska|arizona|california|colorado|hawaii|idaho|montana|nevada|new mexico|oregon|utah|washington|wyoming",
}
_COUNTRIES = {
    "eu-west": "be es fr gb ie lu mc nl pt uk",
    "eu-central": "at ch cz de hu li pl si sk",
    "eu-north": "dk ee fi is lt lv no se",
    "eu-south": "al ba cy gr hr it me mk mt rs sm",
    "eu-east": "bg by md ro ru ua",
    "asia-east": "cn hk mo tw",
    "asia-northeast": "jp kr",
    "asia-southeast": "bn id kh la mm my ph sg th vn",
    "asia-south": "bd in lk np pk",
    "asia-central": "kg kz tj tm uz",
    "me-west": "il jo lb tr",
    "me-central": "ae bh kw om qa sa",
    "australia-east": "au",
}
_CANADA = {
    "ca-east": "new brunswick|newfoundland and labrador|nova scotia|ontario|prince edward island|quebec",
    "ca-west": "alberta|british columbia|manitoba|saskatchewan|yukon",
}
_REGIONS = {f"{state}, us": region for region, states in _US.items() for state in states.split("|")}
_REGIONS |= {f"{state}, ca": region for region, states in _CANADA.items() for state in states.split("|")}
_REGIONS |= {"us": "us", "ca": "ca"}  # of these the state decides, where it is reported
_REGIONS |= {country: region for region, countries in _COUNTRIES.items() for country in countries.split()}


class Places(t.Mapping[str, str]):
    """Vast.ai's words for a place (lower case) to standard regions. A country stands for every place in it, whatever it is called."""

    def __getitem__(self, place: str) -> str:
        lowered = place.strip().lower()
        country = lowered.rpartition(",")[2].strip()
        if lowered.startswith(",") and country:
            return _REGIONS.get(country, country)  # no state is reported: the country alone
        return _REGIONS[lowered if lowered in _REGIONS else country]

    def __iter__(self) -> t.Iterator[str]:
        return iter(_REGIONS)

    def __len__(self) -> int:
        return len(_REGIONS)


PLACES = Places()
