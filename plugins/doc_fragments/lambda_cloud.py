# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that say which Lambda account is meant (ENTRY of module_utils/providers/lambda_/cloud.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  lambda_api_url:
    description:
      - Root of Lambda's API, without C(/api/v1). An address with a path is refused.
      - Taken from E(LAMBDA_API_URL) when not given; else V(https://cloud.lambda.ai).
    type: str
  lambda_api_key:
    description:
      - API key of the Lambda account.
      - Taken from E(LAMBDA_API_KEY) or E(LAMBDA_LABS_API_KEY) when not given.
    type: str
"""
