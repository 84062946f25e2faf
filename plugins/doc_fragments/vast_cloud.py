# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that say which Vast.ai account is meant (ENTRY of module_utils/providers/vast/cloud.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  vast_api_url:
    description:
      - Root of the API of Vast.ai, without C(/api/v0). An address with a path is refused.
      - Taken from E(VAST_URL) when not given; else V(https://console.vast.ai).
    type: str
  vast_api_key:
    description:
      - API key of the Vast.ai account.
      - Taken from E(VAST_API_KEY) when not given.
    type: str
"""
