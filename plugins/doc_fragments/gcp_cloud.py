# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that say which service account of Google Cloud is meant (ENTRY of module_utils/providers/gcp/cloud.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  gcp_api_url:
    description:
      - Root of Google's Compute API, without C(/compute). An address with a path is refused.
      - Taken from E(GCP_API_URL) when not given; else V(https://compute.googleapis.com).
      - When it is given, access tokens are fetched there, too, instead of at the address that the key file names.
    type: str
  gcp_service_account_contents:
    description:
      - The text of a service account's JSON key file.
      - Taken from E(GCP_SERVICE_ACCOUNT_CONTENTS) when not given.
    type: str
  gcp_service_account_file:
    description:
      - Path of a service account's JSON key file on the machine where the module runs. O(gcp_service_account_contents) takes precedence.
      - Taken from E(GCP_SERVICE_ACCOUNT_FILE) when not given.
    type: str
"""
