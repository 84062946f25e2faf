#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: offer_info
short_description: What the clouds would rent now, for how much, and what it can become
description:
  - Asks the clouds side by side and returns their offers, cheapest first, as a table, JSON or CSV.
  - With O(pool) the offers are judged by the pool's rules, and every rejected one is returned with the first reason.
  - A cloud that fails is a warning, an entry in RV(unanswered) and a row of the table; the offers of the others stand. When none answers, the
    module fails.
  - Answers are remembered for O(cache_ttl) seconds, and the lowest price of each kind of machine is kept so that trends can be shown.
    Neither holds secrets or anything of an account.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  clouds:
    description: Clouds to ask, by any of their names. Default is all for which a key or machines are given; with O(pool) those of its class.
    type: list
    elements: str
    default: []
  gpu_type:
    description: Only these models, by any of their names. V(A100) means every form of it, V(A100 80GB) also its memory.
    type: list
    elements: str
    default: []
  gpu_count:
    description: Only machines with exactly so many GPUs.
    type: int
  min_gpu_memory:
    description: Only GPUs with at least so much memory each. A number means GiB; V(24GiB) and V(24576MiB) are understood.
    type: str
  region:
    description:
      - Only these regions, standard ones (V(us-east), V(us-west), V(eu-central), V(asia-pacific) ...) or a cloud's own (V(us-west-1)).
    type: list
    elements: str
    default: []
  max_price:
    description: Only what costs at most so many dollars per hour, as text.
    type: str
  spot:
    description: Only interruptible machines, or only others. Default is both.
    type: bool
  lanes:
    description: Only what can become one of these.
    type: list
    elements: str
    choices: [talos, takeover, kubelet, service]
    default: []
  disk:
    description: GiB of disk that prices shall include, where a cloud bills disk by size. Default is 64, or what the pool needs.
    type: int
  traffic_once_gb:
    description:
      - GB that a machine is assumed to download once, for the estimate RV(offers[].traffic_once) where a cloud bills traffic by the GB.
      - Prices, limits, budgets and the ledger contain no traffic.
    type: int
    default: 30
    version_added: 0.2.0
  traffic_hour_gb:
    description: GB per hour that a machine is assumed to receive, and to send, for RV(offers[].traffic_hour).
    type: int
    default: 1
    version_added: 0.2.0
  sold_out:
    description: Also list what nobody can rent just now.
    type: bool
    default: false
  pool:
    description: Name (or namespace/name) of a GPUNodePool or GPURequest of O(documents) whose rules shall be applied.
    type: str
  documents:
    description: Documents that hold the pool; each entry is a file, a folder, a glob pattern, or a document written inline.
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
    description: Kubernetes Secret in namespace C(tgp-system) to look into for credentials that are given nowhere else. Used with O(pool).
    type: str
    default: tgp-operator-secret
  cache:
    description:
      - Where answers are remembered. V(file) is a folder below O(state_dir), V(cluster) the ConfigMap C(tgp-offer-cache) in namespace
        C(tgp-system), V(none) asks every time. Own machines are always asked.
    type: str
    choices: [none, file, cluster]
    default: file
  cache_ttl:
    description: Seconds for which a remembered answer serves.
    type: int
    default: 300
  refresh:
    description: Ask although an answer is remembered, and remember the new one.
    type: bool
    default: false
  history:
    description:
      - Where prices are kept. V(file) is a file of JSON lines per day below O(state_dir), V(cluster) a few ConfigMaps
        C(tgp-price-history-*) of which the oldest go.
    type: str
    choices: [none, file, cluster]
    default: file
  trend:
    description: Compare with the prices that were kept. Off saves reading them.
    type: bool
    default: true
  history_path:
    description: Write all kept prices into this file, as CSV.
    type: path
  format:
    description:
      - Print what was found in this form, or write it to O(path). Without both nothing is printed; RV(table) has the table in any case.
    type: str
    choices: [table, json, csv]
  path:
    description: Write it into this file instead of printing it, as V(table) unless O(format) says otherwise.
    type: path
  limit:
    description: Rows of a printed table. Results and files always hold everything.
    type: int
    default: 50
  purchase_price:
    description: What a machine of one's own would cost in dollars, as text. Then RV(purchase) says when buying pays.
    type: str
  power_price:
    description: Dollars per kWh, as text.
    type: str
  power_watts:
    description: What the bought machine would draw.
    type: int
    default: 0
requirements:
  - cronsim >= 2.6 (for schedules of disruption budgets)
  - jsonschema >= 4.20
  - tzdata >= 2024.1 (where the system has no time zones)
  - cryptography >= 42 (for Google Cloud)
extends_documentation_fragment:
  - tgp.gpu.kubernetes
  - tgp.gpu.claims
  - tgp.gpu.clouds
  - tgp.gpu.attributes.no_diff
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.lambda_instance
"""

EXAMPLES = r"""
- name: The three cheapest A100 machines in America's west
  tgp.gpu.offer_info:
    clouds: [lambda]
    gpu_type: [A100]
    region: [us-west]
  register: market

- name: Print them
  ansible.builtin.debug:
    msg: "{{ item.price_hour }} $/h {{ item.instance_type }} {{ item.cloud_region }}"
  loop: "{{ market.offers[:3] }}"
  loop_control:
    label: "{{ item.id }}"

- name: One GPU of at least 24 GiB that can become a node, anywhere, asked anew, as a CSV file
  tgp.gpu.offer_info:
    gpu_count: 1
    min_gpu_memory: 24GiB
    lanes: [kubelet, talos]
    refresh: true
    format: csv
    path: offers.csv

- name: What the pool a10 would take, and why it would not take the rest
  tgp.gpu.offer_info:
    documents: [examples/lambda.yml]
    pool: a10
"""

RETURN = r"""
offers:
  description: What fits, cheapest first.
  returned: always
  type: list
  elements: dict
  contains:
    cloud: {description: Its cloud., type: str, returned: always, sample: lambda}
    id: {description: Names the offer within its cloud., type: str, returned: always, sample: gpu_1x_a10@us-east-1}
    instance_type: {description: The cloud's type., type: str, returned: always, sample: gpu_1x_a10}
    model: {description: GPU model; empty without GPU., type: str, returned: always, sample: A10}
    gpu_count: {description: Number of GPUs., type: int, returned: always, sample: 1}
    gpu_memory_mib: {description: Memory per GPU., type: int, returned: always, sample: 24576}
    gpu_memory_gib: {description: The same as it is advertised., type: int, returned: always, sample: 24}
    price_hour:
      description: Dollars per hour for the whole machine, disk and fixed fees included, exact.
      type: str
      returned: always
      sample: "1.29"
    price_gpu_hour: {description: Its share per GPU., type: str, returned: always, sample: "1.29"}
    price_estimated:
      description: Whether the price is a published one and the true one is known only once the machine exists.
      type: bool
      returned: always
      sample: false
    traffic_price_gb_down:
      description:
        - Dollars per GB towards the machine, beside RV(offers[].price_hour). None where no traffic is billed, or the cloud does not tell.
      type: str
      returned: always
      sample: "0.002"
    traffic_price_gb_up: {description: Dollars per GB away from the machine., type: str, returned: always, sample: "0.004"}
    traffic_once:
      description:
        - Estimate in dollars for O(traffic_once_gb) GB downloaded once. None where no traffic is billed, or the cloud does not tell.
      type: str
      returned: always
      sample: "0.06"
    traffic_hour:
      description: Estimate in dollars per hour for O(traffic_hour_gb) GB per hour in each direction.
      type: str
      returned: always
      sample: "0.006"
    region: {description: Standard region., type: str, returned: always, sample: us-east}
    cloud_region: {description: The cloud's region; empty when sold out., type: str, returned: always, sample: us-east-1}
    available: {description: "How many; 0 is sold out, none is not counted.", type: int, returned: always, sample: 0}
    spot: {description: Whether it can be taken back., type: bool, returned: always, sample: false}
    vcpus: {description: Processors., type: int, returned: always, sample: 30}
    memory_mib: {description: Memory of the machine., type: int, returned: always, sample: 204800}
    disk_gib: {description: Local disk., type: int, returned: always, sample: 1400}
    arch: {description: amd64 or arm64., type: str, returned: always, sample: amd64}
    lanes: {description: What it can become., type: list, elements: str, returned: always, sample: [kubelet]}
    reliability: {description: Share of time its host was there., type: str, returned: always, sample: "0.995"}
    traits: {description: What else the cloud tells of the host., type: dict, returned: always, sample: {verified: "true"}}
    age_seconds: {description: Seconds since it was read., type: int, returned: always, sample: 12}
    lane: {description: "With O(pool), what it would become.", type: str, returned: always, sample: kubelet}
    place: {description: "With O(pool), its place in the order in which the pool would try.", type: int, returned: always, sample: 1}
rejected:
  description: With O(pool), every offer that it would not take, with the first C(reason) and else like RV(offers).
  returned: always
  type: list
  elements: dict
reasons:
  description: How many offers each reason excluded, in the order in which the rules are checked.
  returned: always
  type: dict
  sample: {gpu type: 12, maxHourlyPrice: 3}
unanswered:
  description: Clouds that did not answer.
  returned: always
  type: list
  elements: dict
  contains:
    cloud: {description: Its name., type: str, returned: always, sample: lambda}
    msg: {description: What happened., type: str, returned: always, sample: "lambda: no API key is given."}
    kind: {description: Kind of failure., type: str, returned: always, sample: auth}
cache:
  description: Where the answers come from.
  returned: always
  type: dict
  contains:
    hits: {description: How many answers were remembered., type: int, returned: always, sample: 1}
    misses: {description: How many clouds were asked., type: int, returned: always, sample: 0}
    age_seconds: {description: Seconds since each cloud's answer was read., type: dict, returned: always, sample: {lambda: 34}}
trend:
  description: Of each kind of machine in RV(offers) the price C(now), C(1h), C(24h) and C(7d) ago (none = not known), C(lowest) and C(highest).
  returned: always
  type: list
  elements: dict
  sample: [{cloud: lambda, model: A10, gpu_count: 1, region: us-east, lane: kubelet, now: "1.29", 24h: "1.19", lowest: "1.19"}]
purchase:
  description: After how many C(hours) of use buying has cost less than the cheapest offer (none = never), and a C(sentence) about it.
    None without O(purchase_price).
  returned: always
  type: dict
table:
  description: The lines of the table for people, whatever O(format) is.
  returned: always
  type: list
  elements: str
"""

from ..module_utils.core.task import Task, main
from ..module_utils.kube.auth.credentials import CLUSTER_SPEC
from ..module_utils.model.defaults import PRICE_TTL
from ..module_utils.observe.options import DOCUMENTS_SPEC
from ..module_utils.offers.listing import FORMATS
from ..module_utils.offers.market import PLACES
from ..module_utils.planner.cost.traffic import HOUR_GB, ONCE_GB
from ..module_utils.providers.registry import CLOUDS_SPEC
from ..module_utils.reports.price_report import offers_run
from ..module_utils.store.open_store import CLAIMS_SPEC

SPEC = dict(
    argument_spec=dict(
        clouds=dict(type="list", elements="str", default=[]),
        gpu_type=dict(type="list", elements="str", default=[]),
        gpu_count=dict(type="int"),
        min_gpu_memory=dict(type="str"),
        region=dict(type="list", elements="str", default=[]),
        max_price=dict(type="str"),
        spot=dict(type="bool"),
        lanes=dict(type="list", elements="str", choices=["talos", "takeover", "kubelet", "service"], default=[]),
        disk=dict(type="int"),
        traffic_once_gb=dict(type="int", default=ONCE_GB),
        traffic_hour_gb=dict(type="int", default=HOUR_GB),
        sold_out=dict(type="bool", default=False),
        pool=dict(type="str"),
        cache=dict(type="str", choices=list(PLACES), default="file"),
        cache_ttl=dict(type="int", default=PRICE_TTL),
        refresh=dict(type="bool", default=False),
        history=dict(type="str", choices=list(PLACES), default="file"),
        trend=dict(type="bool", default=True),
        history_path=dict(type="path"),
        format=dict(type="str", choices=list(FORMATS)),
        path=dict(type="path"),
        limit=dict(type="int", default=50),
        purchase_price=dict(type="str"),
        power_price=dict(type="str"),
        power_watts=dict(type="int", default=0),
        **DOCUMENTS_SPEC,
        **CLUSTER_SPEC,
        **CLAIMS_SPEC,
        **CLOUDS_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict[str, object]:
    return offers_run(task)


if __name__ == "__main__":
    main(SPEC, run)
