# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that name a cluster (module_utils/kube/auth/credentials.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
requirements:
  - PyYAML >= 6.0
  - kubernetes >= 33.1 (for kubeconfigs with an exec plugin or the auth-provider oidc)
options:
  kubeconfig:
    description:
      - Path of a kubeconfig. Without it E(K8S_AUTH_KUBECONFIG), then E(KUBECONFIG) (several paths joined by a colon are merged), then
        C(~/.kube/config), then the service account of the pod this runs in.
      - Users with a token, a client certificate or a service account need no further library. Exec plugins and the auth-provider oidc are
        loaded by the Python library kubernetes; other auth-providers are rejected.
      - An exec plugin gets an environment without the run's API keys, no standard input and 60 seconds. Its token is renewed before it expires
        and after a 401. A client certificate is requested once per task, so it must be valid for as long as the task takes.
      - A renewed token of the auth-provider oidc is written to the kubeconfig, as kubectl does.
    type: str
  context:
    description: Context of the kubeconfig to use. Without it E(K8S_AUTH_CONTEXT), then its current one.
    type: str
"""
