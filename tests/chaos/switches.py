# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stories leave out for now, each with the defect of the collection that it would meet again and again.

``TGP_CHAOS_ALL=1`` switches everything on: that is how the defect is seen.
"""

from __future__ import annotations

import os

OFF: dict[str, str] = {}
ALL = bool(os.environ.get("TGP_CHAOS_ALL"))


def on(name: str) -> bool:
    """Whether an invariant, a part of one, or an ingredient is in use."""
    return ALL or name not in OFF
