# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that say which tailnet is meant (module_utils/mesh/connect.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  tailscale_api_url:
    description:
      - Root of the API, without C(/api/v2). Point it at a headscale server (0.28 or later) or at the sandbox. Which API a headscale
        speaks is asked of it; before 0.30 it is its own, which takes O(tailscale_api_token) only.
      - Taken from E(TAILSCALE_API_URL) when not given; else V(https://api.tailscale.com).
    type: str
  tailscale_tailnet:
    description: The tailnet's ID. Taken from E(TAILSCALE_TAILNET) when not given; else the tailnet of the credential.
    type: str
  tailscale_oauth_client_id:
    description:
      - ID of an OAuth client with the scopes C(auth_keys) and C(devices:core) and a tag that owns the tags of the machines.
      - With C(policy_file:read), C(devices:core:read) and C(devices:posture_attributes:read) it may also read the policy, so that a
        check sees beforehand whether the tags exist.
      - Taken from E(TS_OAUTH_CLIENT_ID) when not given.
    type: str
  tailscale_oauth_client_secret:
    description: Secret of the OAuth client. Taken from E(TS_OAUTH_CLIENT_SECRET) when not given. It never reaches a machine.
    type: str
  tailscale_api_token:
    description:
      - An API access token, instead of an OAuth client. It has the rights of its user and ends after at most 90 days. For headscale
        an API key (C(headscale apikeys create)).
      - Taken from E(TAILSCALE_API_KEY) or E(TS_API_KEY) when not given.
    type: str
"""
