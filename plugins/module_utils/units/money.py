# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Money is decimal, from text to text (L-0). Nothing is rounded but what people read."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from ..core.errors import InvalidInput

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
