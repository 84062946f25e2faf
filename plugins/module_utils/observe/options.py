# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options every fleet module shares."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import env_fallback

from ..kube.auth.credentials import CLUSTER_SPEC
from ..mesh.connect import MESH_SPEC
from ..model.labels import REQUESTER_LABEL, TEAM_LABEL
from ..planner.cost.budgets import ACTIONS
from ..providers.registry import CLOUDS_SPEC
from ..store.open_store import CLAIMS_SPEC
from ..units.calendar import PERIODS

DOCUMENTS_SPEC: dict[str, t.Any] = dict(
    documents=dict(type="list", elements="raw", default=[]),
    documents_from_cluster=dict(type="bool", default=False),
    allow_commands=dict(type="list", elements="str", fallback=(env_fallback, ["TGP_ALLOW_COMMANDS"])),
    credentials_secret=dict(type="str", default="tgp-operator-secret", no_log=False),
)

TALOS_SPEC: dict[str, t.Any] = dict(
    talos_secrets=dict(type="raw", no_log=True, fallback=(env_fallback, ["TGP_TALOS_SECRETS"])),
    control_plane_endpoint=dict(type="str", fallback=(env_fallback, ["TGP_CONTROL_PLANE_ENDPOINT"])),
    cluster_name=dict(type="str"),
    kubernetes_version=dict(type="str"),
    talos_version=dict(type="str"),
    talosctl=dict(type="bool"),
    release_tables=dict(type="path", fallback=(env_fallback, ["TGP_RELEASE_TABLES"])),
    talosconfig=dict(type="path", fallback=(env_fallback, ["TALOSCONFIG"])),
    image_factory_url=dict(type="str", fallback=(env_fallback, ["IMAGE_FACTORY_URL"])),
    mesh_login_server=dict(type="str"),
)

BUDGET_SPEC: dict[str, t.Any] = dict(
    period=dict(type="str", choices=list(PERIODS), required=True),
    amount=dict(type="str", required=True),
    time_zone=dict(type="str", default="UTC"),
    soft_percent=dict(type="int", default=80),
    action=dict(type="str", choices=list(ACTIONS), default="stop_launch"),
)

# a budget of a team ends no machine: others work there, too
TEAM_BUDGET_SPEC: dict[str, t.Any] = dict(
    team=dict(type="str", required=True), **{name: spec for name, spec in BUDGET_SPEC.items() if name != "action"}
)

RUN_SPEC: dict[str, t.Any] = dict(
    run_id=dict(type="str"),
    summary=dict(type="path"),
    mesh_proxy=dict(type="str", fallback=(env_fallback, ["TGP_MESH_PROXY"])),
    ignore_blocklist=dict(type="bool", default=False),
    allow_mass_delete=dict(type="bool", default=False),
    orphan_policy=dict(type="str", choices=["destroy", "report"], default="destroy"),
    report_foreign=dict(type="bool", default=False),
    gpu_resources=dict(type="list", elements="str", fallback=(env_fallback, ["TGP_GPU_RESOURCES"])),
    idle_ignore_namespaces=dict(type="list", elements="str", fallback=(env_fallback, ["TGP_IDLE_IGNORE_NAMESPACES"])),
    max_remove_per_run=dict(type="int", fallback=(env_fallback, ["TGP_MAX_REMOVE_PER_RUN"])),
    max_nodes_total=dict(type="int"),
    max_hourly_total=dict(type="str"),
    budget=dict(type="dict", fallback=(env_fallback, ["TGP_BUDGET"]), options=BUDGET_SPEC),
    team_budgets=dict(type="list", elements="dict", options=TEAM_BUDGET_SPEC),
    team_label=dict(type="str", default=TEAM_LABEL, fallback=(env_fallback, ["TGP_TEAM_LABEL"])),
    requester_label=dict(type="str", default=REQUESTER_LABEL, fallback=(env_fallback, ["TGP_REQUESTER_LABEL"])),
    namespace_teams=dict(type="bool", default=False, fallback=(env_fallback, ["TGP_NAMESPACE_TEAMS"])),
    events_file=dict(type="str"),
    notify_url=dict(type="str", no_log=True, fallback=(env_fallback, ["TGP_NOTIFY_URL"])),
    notify_token=dict(type="str", no_log=True, fallback=(env_fallback, ["TGP_NOTIFY_TOKEN"])),
    notify_command=dict(type="raw"),
    notify_template=dict(type="dict"),
    notify_apprise=dict(type="raw", no_log=True),
    notify_quiet=dict(type="str", fallback=(env_fallback, ["TGP_NOTIFY_QUIET"])),
    notify_summary=dict(type="str", fallback=(env_fallback, ["TGP_NOTIFY_SUMMARY"])),
    metrics_file=dict(type="path", fallback=(env_fallback, ["TGP_METRICS_FILE"])),
    metrics_push_url=dict(type="str", no_log=True, fallback=(env_fallback, ["TGP_METRICS_PUSH_URL"])),
    metrics_per_machine=dict(type="bool", default=False, fallback=(env_fallback, ["TGP_METRICS_PER_MACHINE"])),
    offer_cache=dict(type="str", choices=["none", "file", "cluster"], default="file"),
)

# of modules that join machines while they rent others
JOIN_SPEC: dict[str, t.Any] = dict(
    join=dict(type="bool", default=False),
    join_names=dict(type="list", elements="str", default=[]),
    wanted=dict(type="dict", default={}),
)

FLEET_SPEC: dict[str, t.Any] = dict(
    **DOCUMENTS_SPEC, **TALOS_SPEC, **RUN_SPEC, **CLUSTER_SPEC, **CLAIMS_SPEC, **CLOUDS_SPEC, **MESH_SPEC
)
