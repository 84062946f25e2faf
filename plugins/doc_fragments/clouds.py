# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options of all clouds (CLOUDS_SPEC in module_utils/clouds/options.py)."""

from __future__ import annotations

from .lambda_cloud import ModuleDocFragment as Lambda
from .webhook import ModuleDocFragment as Webhook


class ModuleDocFragment:
    # annotated, because the YAML check of ansible-test reads plain assignments only and understands no expression
    DOCUMENTATION: str = Lambda.DOCUMENTATION + Webhook.DOCUMENTATION.partition("options:\n")[2]
