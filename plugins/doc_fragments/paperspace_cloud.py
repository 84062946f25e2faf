# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that say which Paperspace account is meant (ENTRY of module_utils/providers/paperspace/cloud.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  paperspace_api_url:
    description:
      - Root of the API of Paperspace, without C(/v1). An address with a path is refused.
      - Taken from E(PAPERSPACE_API_URL) when not given; else V(https://api.paperspace.com).
    type: str
  paperspace_api_key:
    description:
      - API key of the Paperspace account.
      - Taken from E(PAPERSPACE_API_KEY) when not given.
    type: str
"""
