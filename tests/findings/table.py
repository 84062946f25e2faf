# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All findings, in the order of the items."""

from __future__ import annotations

from .row import Row
from .rows_ansible import ITEM_1, ITEM_3, ITEM_4
from .rows_modules import ITEM_2
from .rows_money import ITEM_5, ITEM_6, ITEM_7
from .rows_safety import ITEM_8, ITEM_9, ITEM_10
from .rows_words import ITEM_11, ITEM_12, ITEM_13

ROWS: tuple[Row, ...] = (
    *ITEM_1,
    *ITEM_2,
    *ITEM_3,
    *ITEM_4,
    *ITEM_5,
    *ITEM_6,
    *ITEM_7,
    *ITEM_8,
    *ITEM_9,
    *ITEM_10,
    *ITEM_11,
    *ITEM_12,
    *ITEM_13,
)
