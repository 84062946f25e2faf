# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options of all clouds (module_utils/providers/registry.py)."""

from __future__ import annotations

from .gcp_cloud import ModuleDocFragment as Gcp
from .lambda_cloud import ModuleDocFragment as Lambda
from .paperspace_cloud import ModuleDocFragment as Paperspace
from .runpod_cloud import ModuleDocFragment as RunPod
from .vast_cloud import ModuleDocFragment as Vast
from .vultr_cloud import ModuleDocFragment as Vultr
from .webhook import ModuleDocFragment as Webhook

_FIRST, *_REST = (Gcp, Lambda, Paperspace, RunPod, Vast, Vultr, Webhook)


class ModuleDocFragment:
    # annotated, because the YAML check of ansible-test reads plain assignments only and understands no expression
    DOCUMENTATION: str = _FIRST.DOCUMENTATION + "".join(fragment.DOCUMENTATION.partition("options:\n")[2] for fragment in _REST)
