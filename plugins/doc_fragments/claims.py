# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that say where our records are kept (module_utils/store/open_store.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  claim_store:
    description:
      - Where claims, findings and the ledger are kept. V(cluster) means ConfigMaps in namespace C(tgp-system), V(directory) means files below
        O(state_dir) of the machine that runs the playbooks.
      - V(crd) means that claims are GPUNodeClaim objects in C(tgp-system), beside findings and the ledger in ConfigMaps. C(crds) of
        M(tgp.gpu.manifests) installs the kind.
      - All runs of a cluster need the same value. To change it, run C(move_claims.yml), which moves the claims.
    type: str
    choices: [cluster, crd, directory]
    default: cluster
  ledger:
    description:
      - Where the closing line of each machine is written. V(cluster) means ConfigMaps in namespace C(tgp-system), V(file) means files
        below O(state_dir), V(both) means that a machine is closed only when both have its line. Default is the place of the claims.
      - Taken from E(TGP_LEDGER) when not given. All modules of a run need the same value.
    type: str
    choices: [cluster, file, both]
  state_dir:
    description:
      - Folder for the run lock and the event log, and for the records with O(claim_store=directory). Without it E(TGP_STATE_DIR), then
        C(tgp) in E(XDG_STATE_HOME), then C(~/.local/state/tgp).
    type: path
  cluster_id:
    description: Eight lower-case hex digits that mark what is ours. Default comes from the UID of namespace C(kube-system).
    type: str
"""
