# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options every fleet module shares (module_utils/observe/options.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
requirements:
  - apprise >= 1.9 (for O(notify_apprise))
  - cronsim >= 2.6 (for schedules of disruption budgets)
  - cryptography >= 42
  - jsonschema >= 4.20
  - prometheus-client >= 0.20 (for O(metrics_file) and O(metrics_push_url))
  - tzdata >= 2024.1 (where the system has no time zones)
options:
  documents:
    description:
      - The GPUNodeClass, GPUNodePool and GPURequest documents. Each entry is a file, a folder, a glob pattern, or a document written inline.
      - Helm values with C(nodeGroups), as k8s-gpu-autoprovision takes them, are understood too.
    type: list
    elements: raw
    default: []
  documents_from_cluster:
    description: Also read the documents from the cluster, where their CRDs are installed.
    type: bool
    default: false
  allow_commands:
    description:
      - Programs of the controller that documents given by O(documents) may name, as C(disruption.idleProbe.command) of a GPUNodePool does. Each
        entry is a command line or its first words, split as a shell splits words; a command that begins with these words is allowed. Without
        an entry for it, a document that names a command is refused.
      - Objects of the cluster can name no command, whatever stands here (docs/reference/who_may_write.md).
      - Taken from E(TGP_ALLOW_COMMANDS) when not given, separated by commas.
    type: list
    elements: str
    version_added: 0.2.0
  credentials_secret:
    description: Kubernetes Secret in namespace C(tgp-system) to look into for credentials that are given nowhere else.
    type: str
    default: tgp-operator-secret
  talos_secrets:
    description:
      - The Talos cluster's secrets, as a path or as a mapping - a bundle of C(talosctl gen secrets), or an existing worker or control
        plane configuration. Only what a worker needs is read from it; CA keys are never kept.
      - Taken from E(TGP_TALOS_SECRETS) when not given.
    type: raw
  control_plane_endpoint:
    description:
      - URL of the Kubernetes API as the machines reach it, for example V(https://100.64.0.1:6443).
      - Taken from E(TGP_CONTROL_PLANE_ENDPOINT) when not given; else from the secrets, where they have it.
    type: str
  cluster_name:
    description: Name of the Talos cluster.
    type: str
  kubernetes_version:
    description: Version of the kubelet on new machines. Default is the API server's own.
    type: str
  talos_version:
    description: Talos version the machine configurations are made for, where the tag of the image of a class does not tell it.
    type: str
  talosctl:
    description:
      - Whether C(talosctl validate) looks at a configuration of lane V(talos), too, before anything is rented. By default
        M(tgp.gpu.fleet_validate) asks it when it is on PATH and of the minor version of O(talos_version), and M(tgp.gpu.fleet_plan) does not.
        V(true) makes a missing or unfit program an error of both.
    type: bool
  release_tables:
    description:
      - A YAML file with rows for the tables of Talos releases, their Kubernetes and NVIDIA's drivers (docs/reference/releases.md). Its rows
        are laid over those of the collection, so that a release that is newer than the collection can be used.
      - Taken from E(TGP_RELEASE_TABLES) when not given.
    type: path
    version_added: 0.2.0
  talosconfig:
    description:
      - A talosconfig, whose current context is used to ask nodes that run Talos for services, logs and modules. Role C(os:reader) is enough;
        the version of the driver is shown to C(os:admin) alone.
      - M(tgp.gpu.fleet_diagnose) asks GPU nodes. Modules that wait for machines ask one that did not join, for at most five seconds, before it
        is terminated, and keep the answer in its evidence file (docs/how_to/diagnosis.md).
      - Without one no Talos API is asked. Taken from E(TALOSCONFIG) when not given.
    type: path
    version_added: 0.3.0
  image_factory_url:
    description:
      - Address of the Image Factory, which is asked whether the extensions of a class's C(talosConfig.schematic) exist. Default is
        V(https://factory.talos.dev). One that does not answer is warned of.
      - Taken from E(IMAGE_FACTORY_URL) when not given.
    type: str
  mesh_login_server:
    description: URL of the coordination server for machines, where it is not Tailscale's (headscale).
    type: str
  mesh_proxy:
    description:
      - URL of an HTTP proxy into the tailnet, through which services (lane C(service)) are asked whether they work and whether they are
        idle, where this machine is not in the tailnet itself. C(tailscaled --outbound-http-proxy-listen) is one.
      - Taken from E(TGP_MESH_PROXY) when not given.
    type: str
  run_id:
    description: Names the run, so that several tasks of one play share its lock and its log. RV(tgp.gpu.fleet_plan#module:run_id) returns it.
    type: str
  summary:
    description:
      - A file of mode 0600 for the report of the run as JSON (docs/reference/events.md, schemas/run-report.schema.json), without secrets.
      - It is begun before anything else, so that a path that cannot be written ends the run before a machine is rented, and written again
        after each step of the run, also in check mode and of modules that only look. A file that is not such a report is not overwritten.
    type: path
    version_added: 0.2.0
  ignore_blocklist:
    description: Also try offers that failed a short while ago.
    type: bool
    default: false
  allow_mass_delete:
    description: Allow more orphans to be removed at once than the mass guard lets through.
    type: bool
    default: false
  orphan_policy:
    description:
      - What becomes of a machine that is ours and has no claim, as after a lost record. With V(report) every run tells of it, and it goes on
        costing money until you destroy or adopt it.
    type: str
    choices: [destroy, report]
    default: destroy
    version_added: 0.2.0
  report_foreign:
    description: Also name the machines of the accounts whose names are not like ours. They are never touched, whatever stands here.
    type: bool
    default: false
    version_added: 0.2.0
  gpu_resources:
    description:
      - Extended resources that count as GPUs beside C(nvidia.com/gpu), C(amd.com/gpu) and C(tgp.io/gpu), for example
        C(gpu.intel.com/i915). A pod that asks for one of them is work in every C(idleMode), counts in the use of its node, and is listed
        among the pods that wait. No machine is rented for it, since offers have GPUs of NVIDIA and AMD alone.
      - Taken from E(TGP_GPU_RESOURCES) when not given, separated by commas.
    type: list
    elements: str
    version_added: 0.2.0
  idle_ignore_namespaces:
    description:
      - Namespaces of which pods without GPUs are no work in C(idleMode) V(workload), beside C(kube-system), C(gpu-device-plugin),
        C(gpu-operator), C(tailscale) and C(tgp-system), for example those of monitoring and logging.
      - Taken from E(TGP_IDLE_IGNORE_NAMESPACES) when not given, separated by commas.
    type: list
    elements: str
    version_added: 0.2.0
  max_remove_per_run:
    description:
      - How many nodes of one pool a run terminates at most for each voluntary reason. Without it any number of idle nodes, and
        one that drifted and one that is used too little.
      - Taken from E(TGP_MAX_REMOVE_PER_RUN) when not given.
    type: int
  max_nodes_total:
    description: Upper limit of machines over all classes.
    type: int
  max_hourly_total:
    description: Upper limit of dollars per hour over all classes, as a decimal string.
    type: str
  budget:
    description:
      - What all machines of this cluster together may cost in a period. Pools and classes may have budgets of their own in their documents.
      - Taken from E(TGP_BUDGET) when not given, as JSON or like C(period=day amount=20.00).
    type: dict
    suboptions:
      period:
        description: The period, as the calendar of O(budget.time_zone) has it. A week begins on Monday.
        type: str
        choices: [day, week, month]
        required: true
      amount:
        description: Dollars, as a decimal string. Before a launch an hour of the machine must still be affordable.
        type: str
        required: true
      time_zone:
        description: Whose days are counted, for example V(Europe/Berlin).
        type: str
        default: UTC
      soft_percent:
        description: From this percentage of the amount on a notice is sent.
        type: int
        default: 80
      action:
        description:
          - What is done when the amount is used up. V(stop_launch) launches nothing more.
          - V(drain_idle) also lets C(reap) terminate idle machines at once, whatever C(consolidationPolicy), C(consolidateAfter), C(minAge)
            and C(minNodes) say.
          - V(drain_all) lets it terminate all machines.
        type: str
        choices: [stop_launch, drain_idle, drain_all]
        default: stop_launch
  team_budgets:
    description:
      - What teams may spend in a period (docs/how_to/teams.md). Once its budget is used up, no machine is rented for a team; other teams go on,
        and no machine is terminated for it.
      - What a team spent is its part of the bill by the GPUs that its pods asked for while they ran.
    type: list
    elements: dict
    version_added: 0.3.0
    suboptions:
      team:
        description: The team, as O(team_label) says it. V(unknown) is that of pods, pools and requests without one.
        type: str
        required: true
      period:
        description: The period, as for O(budget.period). A team may have one budget for each.
        type: str
        choices: [day, week, month]
        required: true
      amount:
        description: Dollars, as a decimal string. Before a launch the team's part of an hour of the machine must still be affordable.
        type: str
        required: true
      time_zone:
        description: Whose days are counted, for example V(Europe/Berlin).
        type: str
        default: UTC
      soft_percent:
        description: From this percentage of the amount on a notice is sent.
        type: int
        default: 80
  team_label:
    description:
      - The label that says for which team a pod, a namespace, a pool or a request is (docs/how_to/teams.md). The first of these that has it
        counts, in this order; namespaces only with O(namespace_teams).
      - Taken from E(TGP_TEAM_LABEL) when not given.
    type: str
    default: tgp.io/team
    version_added: 0.3.0
  requester_label:
    description:
      - The label that says who asked for it, found in the same way.
      - Taken from E(TGP_REQUESTER_LABEL) when not given.
    type: str
    default: tgp.io/requester
    version_added: 0.3.0
  namespace_teams:
    description:
      - Whether labels of namespaces count, too. It needs the right to list namespaces, and one call more in runs that look at pods. Without
        that right the team of pods that have no label of their own is unknown, and each run says so.
      - Taken from E(TGP_NAMESPACE_TEAMS) when not given.
    type: bool
    default: false
    version_added: 0.3.0
  events_file:
    description:
      - The event log, one JSON line for each decision, call and outcome (docs/reference/events.md). V(none) means no log.
      - Taken from E(TGP_EVENTS_FILE) when not given; else C(events.jsonl) in O(state_dir).
    type: str
  notify_url:
    description:
      - Where urgent notices are sent, by an HTTP POST with a JSON body (docs/reference/events.md). That it cannot be
        reached fails no run.
      - Taken from E(TGP_NOTIFY_URL) when not given.
    type: str
  notify_token:
    description:
      - Bearer token for O(notify_url).
      - Taken from E(TGP_NOTIFY_TOKEN) when not given; else from the key C(notify-token) of O(credentials_secret), where there is one.
    type: str
  notify_command:
    description:
      - A command that gets the same body on its standard input. A list of words, or a line that is split into words; no shell is started.
      - Since 0.2.0 its environment is C(PATH), C(HOME), the language, proxies and certificates, and nothing else of that of the playbook.
      - Taken from E(TGP_NOTIFY_COMMAND) when not given.
    type: raw
  notify_template:
    description:
      - The body for receivers that want another one. In every string of it C({kind}), C({subject}), C({text}), C({key}), C({run}),
        C({time}) and C({playbook}) are filled in. A mapping of C(text) to V({kind}, {text}) is what chat rooms like Slack want.
    type: dict
  notify_apprise:
    description:
      - Who gets messages through the library apprise, such as Slack, Discord, Teams, ntfy or mail (docs/reference/events.md). A list of its
        URLs, or a line with blanks between them. In the place of a URL, a path names a file with one URL a line, and V(secret) means the key
        C(notify-apprise) of O(credentials_secret).
      - A message is sent when a notice begins and when it is resolved. That a message does not arrive fails no run.
      - Taken from E(TGP_NOTIFY_APPRISE) when not given.
    type: raw
    version_added: 0.3.0
  notify_quiet:
    description:
      - Hours in which O(notify_apprise) gets only what is urgent - orphans, budgets, terminations that do not end, a lost lock - for
        example V(22:00-07:00 Europe/Berlin). Without a time zone they are UTC. The rest is sent afterwards, if it still lasts.
      - Taken from E(TGP_NOTIFY_QUIET) when not given.
    type: str
    version_added: 0.3.0
  notify_summary:
    description:
      - When O(notify_apprise) gets a summary each day, for example V(08:00 Europe/Berlin). The first run after that time sends it. Notices
        that last are then in it, and are not repeated by themselves.
      - Taken from E(TGP_NOTIFY_SUMMARY) when not given.
    type: str
    version_added: 0.3.0
  metrics_file:
    description:
      - A file that ends with C(.prom), which is replaced at the end of each run by its metrics, for the textfile collector of node_exporter
        (docs/how_to/metrics.md). Its folder must exist. That it cannot be written fails no run.
      - Taken from E(TGP_METRICS_FILE) when not given.
    type: path
    version_added: 0.3.0
  metrics_push_url:
    description:
      - A Pushgateway that gets the metrics at the end of each run, in the group of job C(tgp_gpu) and the id of the cluster, for example
        V(https://user:password@gateway.example:9091). That it cannot be reached fails no run.
      - Taken from E(TGP_METRICS_PUSH_URL) when not given.
    type: str
    version_added: 0.3.0
  metrics_per_machine:
    description:
      - Also metrics with a series for each machine, by its name. Each machine then leaves its series in Prometheus.
      - Taken from E(TGP_METRICS_PER_MACHINE) when not given.
    type: bool
    default: false
    version_added: 0.3.0
  offer_cache:
    description:
      - Where offers are remembered that were read less than five minutes ago, so that a run without anything to do asks no cloud for them
        again. Before a run launches or ends a machine by them, it asks. V(none) asks the clouds every time. V(file) and V(cluster) are the
        places of M(tgp.gpu.offer_info).
    type: str
    choices: [none, file, cluster]
    default: file
"""
