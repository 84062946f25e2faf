# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that name a cluster (module_utils/kube/auth/credentials.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
requirements:
  - PyYAML >= 6.0
options:
  kubeconfig:
    description:
      - Path of a kubeconfig. Without it E(K8S_AUTH_KUBECONFIG), then E(KUBECONFIG) (several paths joined by a colon are merged), then
        C(~/.kube/config), then the service account of the pod this runs in.
    type: str
  context:
    description: Context of the kubeconfig to use. Without it E(K8S_AUTH_CONTEXT), then its current one.
    type: str
"""
