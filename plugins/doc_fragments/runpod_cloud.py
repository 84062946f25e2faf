# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that say which RunPod account is meant (ENTRY of module_utils/providers/runpod/cloud.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  runpod_api_url:
    description:
      - Root of the API of RunPod, without C(/v2). An address with a path is refused.
      - Taken from E(RUNPOD_API_URL) when not given; else V(https://api.runpod.io).
    type: str
  runpod_api_key:
    description:
      - API key of the RunPod account.
      - Taken from E(RUNPOD_API_KEY) when not given.
    type: str
"""
