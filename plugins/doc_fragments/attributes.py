# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules can promise: ``tgp.gpu.attributes`` for those that change something, ``tgp.gpu.attributes.no_diff`` for those of them whose
changes are no text that could be compared, ``tgp.gpu.attributes.info`` for those that read."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Says what would be done and does nothing.
    support: full
  diff_mode:
    description: Returns what changes, or would change, as before and after.
    support: full
"""

    NO_DIFF = r"""
attributes:
  check_mode:
    description: Says what would be done and does nothing.
    support: full
  diff_mode:
    description: Returns what changes, or would change, as before and after.
    support: none
"""

    INFO = r"""
attributes:
  check_mode:
    description: Only reads, so it does in check mode what it always does.
    support: full
  diff_mode:
    description: Returns what changes, or would change, as before and after.
    support: none
"""
