# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values as documents, annotations and answers write them (L-0), and back: durations and times, networks, money, quantities. Text in; seconds,
aware UTC datetimes and Decimal out."""

from __future__ import annotations

import functools
import ipaddress
import re
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from ..core.errors import InvalidInput

NEVER = "Never"
LONGEST = 100 * 365 * 24 * 3600  # what is longer is as long as this: no date lies beyond what a datetime can say
_UNITS = {"s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)")
_WHOLE = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:s|m|h))+")


def parse_duration(value: str | int, *, never: bool = False) -> int | None:
    """Seconds of "90s", "10m", "1h30m", "720h" or a plain number of seconds, at most LONGEST. None for "Never", where ``never`` allows it.

    "0s" is zero ("at once"), not "off". Raises InvalidInput for anything else; Go durations know no day.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidInput(f"{value!r} is not a duration.", remedy="Write it like 90s, 10m or 1h30m.")
    text = str(value).strip()
    if text == NEVER:
        if never:
            return None
        raise InvalidInput('"Never" is not allowed here.', remedy="Write a duration like 90s, 10m or 1h30m.")
    if text.isascii() and text.isdigit():
        return int(min(Decimal(text), Decimal(LONGEST)))
    if _WHOLE.fullmatch(text) is None:
        allowed = 'like 90s, 10m or 1h30m, or "Never"' if never else "like 90s, 10m or 1h30m"
        raise InvalidInput(f'"{text}" is not a duration.', remedy=f"Write it {allowed}; the largest unit is h (a day is 24h).")
    seconds = sum((Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(text)), Decimal(0))
    return int(min(seconds, Decimal(LONGEST)))


def print_duration(seconds: float | None) -> str:
    """ "1h30m", "20s", "0s"; "Never" for None. Fractions of a second are dropped."""
    if seconds is None:
        return NEVER
    whole = int(seconds)
    hours, rest = divmod(abs(whole), 3600)
    minutes, rest = divmod(rest, 60)
    text = "".join(f"{number}{unit}" for number, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if number)
    return ("-" if whole < 0 else "") + (text or "0s")


def print_time(moment: datetime) -> str:
    """RFC 3339, UTC, whole seconds, suffix Z."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def whole_second(moment: datetime) -> datetime:
    """The first whole second that is not before ``moment``: what a record keeps of the end of something that lasted at most until then."""
    whole = moment.replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)


def parse_time(text: str) -> datetime:
    """An RFC 3339 time as an aware UTC datetime; one that only another zone's calendar has (the last hours of the year 9999) is the
    nearest there is. Raises InvalidInput when it is none, or has no time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{text!r} is not a time.", remedy="Write it like 2026-08-21T00:00:00Z.") from error
    if moment.tzinfo is None:
        raise InvalidInput(f"{text!r} has no time zone.", remedy="Write it like 2026-08-21T00:00:00Z.")
    try:
        return moment.astimezone(timezone.utc)
    except OverflowError:
        return (datetime.max.replace(microsecond=0) if moment.year > 1 else datetime.min).replace(tzinfo=timezone.utc)


def seconds_between(earlier: datetime, later: datetime) -> float:
    """Seconds from ``earlier`` to ``later``, negative when they are the other way round."""
    return (later - earlier).total_seconds()


def latest(moments: t.Iterable[datetime | None]) -> datetime | None:
    """The latest of the known moments, None without any."""
    given = [moment for moment in moments if moment is not None]
    return max(given) if given else None


# ---- networks of both versions of IP, compared. The library's own comparison of an IPv4 with an IPv6 network is an error

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def lies_in(inner: Network, outer: Network) -> bool:
    """Whether all of ``inner`` is part of ``outer``. No network of one version is part of one of the other."""
    if isinstance(inner, ipaddress.IPv4Network):
        return isinstance(outer, ipaddress.IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, ipaddress.IPv6Network) and inner.subnet_of(outer)


def overlap(first: Network, second: Network) -> bool:
    """Whether an address is in both."""
    return first.version == second.version and first.overlaps(second)


# ---- money is decimal, from text to text (L-0). Nothing is rounded but what people read

FOUR_PLACES = Decimal("0.0001")
_MOST = Decimal(10) ** 12  # with four places still exact in every sum


def parse_money(value: str | int | Decimal) -> Decimal:
    """Dollars as written, exact and not negative. Raises InvalidInput; a float is refused because it has lost digits already."""
    if isinstance(value, (bool, float)) or not isinstance(value, (str, int, Decimal)):
        raise InvalidInput(f"{value!r} is not an amount.", remedy='Write it as text in quotes, for example "0.42".')
    try:
        amount = Decimal(str(value).strip().replace("_", "?"))  # 1_5 would be fifteen
    except InvalidOperation as error:
        raise InvalidInput(f'"{value}" is not an amount.', remedy='Write dollars like "0.42", without a currency sign.') from error
    if not amount.is_finite() or not 0 <= amount < _MOST:
        raise InvalidInput(f'"{value}" is not a possible amount.', remedy="It must be zero or more, and less than a trillion.")
    return amount


def print_money(amount: Decimal) -> str:
    """At least two decimals, up to four: 0.42, 0.345, 0.1435, 10.00."""
    text = str(amount.quantize(FOUR_PLACES, rounding=ROUND_HALF_UP))
    whole, _, digits = text.partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(2, '0')}"


# ---- Kubernetes quantities ("2", "500m", "16Gi") as whole numbers

_FORM = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i))?$")
_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate(("K", "M", "G", "T", "P", "E"), 1)},
}


@functools.lru_cache(maxsize=4096)
def whole(text: str, resource: str = "") -> int:
    """The quantity as a whole number, rounded up: ``cpu`` in thousandths of a core, everything else in its own unit (memory: bytes,
    GPUs: pieces). ValueError when it is not a quantity."""
    match = _FORM.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number = Decimal(match[1] + (match[2] or "")) * _SUFFIX.get(match[3] or "", Decimal(1))
    if resource == "cpu":
        number *= 1000
    return int(number.to_integral_value("ROUND_CEILING"))
