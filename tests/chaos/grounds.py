# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clouds that campaigns are played on."""

from __future__ import annotations

import copy
import dataclasses
import typing as t

from . import hub, own


@dataclasses.dataclass(frozen=True)
class Ground:
    """Where stories are played. One cloud: which calls of its API create, destroy, list and show offers, as expressions of a path with its
    query; what its class and pool say. Or several, as ``parts``. ``budgets``: dollars a day that are soon spent there, the least for hardly
    one machine. ``pools``: training is of class demo, batch of class demo-2, which says the same. ``options`` of every module; ``marks``:
    ingredients that every run here has which acts. Not ``two_hosts``: runs are on host a only, as no other host has the records.
    ``mesh_calls``: calls of the mesh's API that can fail, as expressions. ``node_class``: fields of the class, None for one that it does
    not have. ``gpus`` of a machine; ``lane`` of the pool, where it does not leave that to the cloud. ``dra``: a DRA driver hands out the
    GPUs. ``resource``: by which pods ask for a GPU, or for one of its ``instances``, where MIG divides it by ``profile``. A ``pool`` that
    says something is of services."""

    cloud: str
    create: tuple[str, str] = ("", "")
    destroy: tuple[str, str] = ("", "")
    lists: str = ""
    offers: str = ""
    scenario: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    settings: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    pool: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    parts: tuple[Ground, ...] = ()
    budgets: tuple[str, ...] = ()
    pools: tuple[str, ...] = ("training",)
    options: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    marks: tuple[str, ...] = ()
    two_hosts: bool = True
    node_class: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    gpus: int = 1
    lane: str = ""
    dra: bool = False
    resource: str = "nvidia.com/gpu"
    instances: int = 1
    profile: str = ""
    mesh_calls: tuple[str, ...] = ("/keys", "/device", "/oauth")

    def clouds(self) -> tuple[Ground, ...]:
        return self.parts or (self,)

    def has_hub(self) -> bool:
        """Whether machines reach the cluster through a WireGuard hub."""
        return "wireguardConfig" in self.node_class

    def may_have_hub(self) -> bool:
        """Whether there is a hub, which machines may enter when a class moves to another mesh."""
        return not self.has_own() and not self.pool

    def has_own(self) -> bool:
        """Whether there are own machines behind power webhooks."""
        return self.cloud == own.CLOUD

    def beside(self) -> tuple[str, ...]:
        """What else than clouds a run calls."""
        mesh = "hub" if self.has_hub() else "tailscale"
        return (mesh, "kubernetes", *(("directory",) if self.options.get("claim_store") == "directory" else ()))

    def providers(self) -> dict[str, dict[str, t.Any]]:
        """Clouds of the class and what is set for each."""
        return {one.cloud: copy.deepcopy(one.settings) for one in self.clouds()}


LAMBDA = Ground(
    cloud="lambda",
    create=("POST", "/instance-operations/launch$"),
    destroy=("POST", "/instance-operations/terminate$"),
    lists="/api/v1/instances$",
    offers="/instance-types$",
    scenario={
        "lambda": [
            {"type": "gpu_1x_rtx6000", "region": "us-west-1", "stock": 2, "boot": 20},
            {"type": "gpu_1x_a10", "region": "us-east-1", "stock": 4, "boot": 20},
        ]
    },
    settings={"sshKey": "tgp"},
    budgets=("0.90", "1.80", "3.60"),
)

PAPERSPACE = Ground(
    cloud="paperspace",
    create=("POST", "/v1/machines$"),
    destroy=("DELETE", "/v1/machines/[^/]+$"),
    lists=r"/v1/machines(\?|$)",
    offers="/v1/os-templates",
    scenario={
        "paperspace": {
            "offers": [
                {"type": "A4000", "region": "ny2", "stock": 3, "boot": 20},
                {"type": "A5000", "region": "ny2", "stock": 2, "boot": 20},
                {"type": "A6000", "region": "ny2", "stock": 2, "boot": 20},
            ]
        }
    },
    budgets=("0.90", "2.50", "5.00"),
    pools=("training", "batch"),
)
VAST = Ground(
    cloud="vast",
    create=("PUT", "/api/v0/asks/[^/]+/$"),
    destroy=("DELETE", r"/api/v0/instances/\d+/$"),
    lists=r"/api/v1/instances/(\?|$)",
    offers="/api/v0/bundles/",
    scenario={
        "vast": {
            "offers": [
                {"gpu": "RTX 3090", "place": "Sweden, SE", "price": "0.20", "vm": True, "boot": 20},
                {"gpu": "RTX 4090", "place": "Oregon, US", "price": "0.33", "premium": "0.01", "vm": True, "boot": 20},
                {"gpu": "RTX 4090", "place": "Texas, US", "price": "0.35", "vm": True, "boot": 20},
                {"gpu": "RTX A6000", "place": "Norway, NO", "price": "0.42", "vm": True, "boot": 20},
            ]
        }
    },
    budgets=("0.30", "0.60", "1.20"),
)
SERVICE = {
    "template": {
        "spec": {
            "lanes": ["service"],
            "service": {"image": "registry.example/llm:1", "command": ["serve"], "ports": [8000], "healthPath": "/health"},
        }
    }
}
RUNPOD = Ground(
    cloud="runpod",
    create=("POST", "/v2/pods$"),
    destroy=("DELETE", "/v2/pods/[^/]+$"),
    lists=r"/v2/pods(\?|$)",
    offers="/v2/catalog/gpus",
    scenario={
        "runpod": {
            "offers": [
                {"type": "NVIDIA GeForce RTX 4090", "region": "US-TX-3", "stock": 2, "boot": 20},
                {"type": "NVIDIA L40S", "region": "US-GA-2", "stock": 3, "boot": 20},
            ]
        }
    },
    pool=SERVICE,
    budgets=("0.70", "1.20", "2.40"),
    marks=("lane service",),
)

GROUNDS = {
    **{one.cloud: one for one in (LAMBDA, PAPERSPACE, RUNPOD, VAST)},
    "vast-containers": dataclasses.replace(VAST, pool=SERVICE, marks=("lane service",)),
}
MIXED = Ground(
    cloud="mixed",
    parts=(LAMBDA, PAPERSPACE, VAST),
    scenario={**LAMBDA.scenario, **PAPERSPACE.scenario, **VAST.scenario},
    budgets=("0.60", "0.90", "2.50"),
    pools=("training", "batch"),
)
DIRECTORY = dataclasses.replace(LAMBDA, options={"claim_store": "directory"}, marks=("directory store",), two_hosts=False)
HEADSCALE = dataclasses.replace(
    VAST,
    scenario={**VAST.scenario, "tailnet": {"profile": "headscale"}},
    options={"mesh_login_server": "https://tailscale.test"},
    marks=("headscale",),
)
HEADSCALE_V1 = dataclasses.replace(
    HEADSCALE,
    scenario={**VAST.scenario, "tailnet": {"profile": "headscale-v1"}},
    mesh_calls=("/preauthkey", "/node", "/version"),
)
WIREGUARD = dataclasses.replace(
    LAMBDA, node_class={"tailscaleConfig": None, "wireguardConfig": hub.CONFIG}, marks=("WireGuard",), mesh_calls=("/wg-tgp",)
)
PAIRS = dataclasses.replace(
    LAMBDA,
    scenario={
        "lambda": [
            {"type": "gpu_2x_a6000", "region": "us-south-2", "stock": 3, "boot": 20, "price": "0.66"},
            {"type": "gpu_2x_h100_sxm5", "region": "us-east-1", "stock": 3, "boot": 20, "price": "0.90"},
        ]
    },
    gpus=2,
)
OWN = Ground(
    cloud=own.CLOUD,
    create=("POST", "/start$"),
    destroy=("POST", "/stop$"),
    lists="/status$",
    offers="/status$",
    scenario={"machines": own.MACHINES},
    settings={"payload": "body"},
    marks=("own machines",),
    lane="kubelet",
)
OWN_TALOS = dataclasses.replace(OWN, marks=("own machines", "lane talos"), lane="talos")
ALL = {
    **GROUNDS,
    "wireguard": WIREGUARD,
    "mixed": MIXED,
    "pairs": PAIRS,
    "directory": DIRECTORY,
    "headscale": HEADSCALE,
    "headscale-v1": HEADSCALE_V1,
    "own": OWN,
    "own-talos": OWN_TALOS,
}
SIZES = dataclasses.replace(
    LAMBDA,
    scenario={
        "lambda": [
            {"type": "gpu_2x_a6000", "region": "us-west-1", "price": "0.50", "stock": 1, "boot": 20},
            {"type": "gpu_1x_a10", "region": "us-east-1", "stock": 1, "boot": 20},
        ]
    },
)
VULTR = Ground(
    cloud="vultr",
    create=("POST", "/v2/instances$"),
    destroy=("DELETE", "/v2/instances/[^/]+$"),
    lists=r"/v2/instances(\?|$)",
    offers=r"/v2/plans(\?|$)",
    scenario={
        "vultr": {
            "offers": [
                {"type": "vcg-a16-6c-64g-16vram", "region": "ewr", "stock": 3, "boot": 20},
                {"type": "vcg-a16-2c-8g-2vram", "region": "ewr", "stock": 9, "boot": 20},
                {"type": "vcg-a40-24c-120g-48vram", "region": "atl", "stock": 2, "price": "0.69", "boot": 20},
            ]
        }
    },
    settings={"regions": ["atl", "ewr"]},
    budgets=("0.90", "1.80", "3.60"),
)
GCP = Ground(
    cloud="gcp",
    create=("POST", r"/zones/[^/]+/instances(\?|$)"),
    destroy=("DELETE", r"/zones/[^/]+/instances/[^/]+$"),
    lists=r"/aggregated/instances(\?|$)",
    offers=r"/aggregated/machineTypes(\?|$)",
    scenario={
        "gcp": {
            "gpus_all_regions": 64,
            "gpus_per_region": 64,
            "offers": [
                {"type": "n1-standard-4+nvidia-tesla-t4", "zone": "us-central1-a", "stock": 3, "boot": 20},
                {"type": "n1-standard-4+nvidia-tesla-t4", "zone": "us-east1-c", "stock": 1, "boot": 20},
                {"type": "g2-standard-4", "zone": "us-central1-a", "stock": 2, "boot": 20},
            ],
        }
    },
    settings={"zones": ["us-central1", "us-east1"]},
    budgets=("0.90", "1.80", "3.60"),
)
DRA = dataclasses.replace(LAMBDA, marks=("DRA driver",), dra=True)
MIG = dataclasses.replace(
    LAMBDA,
    scenario={
        "lambda": [
            {"type": "gpu_1x_rtx6000", "region": "us-west-1", "stock": 2, "boot": 20},  # cannot be divided; requests take it
            {"type": "gpu_1x_h100_pcie", "region": "us-east-1", "stock": 3, "boot": 20, "price": "0.80"},
            {"type": "gpu_1x_a100_sxm4", "region": "us-west-1", "stock": 3, "boot": 20, "price": "0.60"},  # of 40 GB
        ]
    },
    marks=("MIG",),
    resource="nvidia.com/mig-3g.40gb",
    instances=2,
    profile="3g.40gb",
)
BY_NAME = {"vultr": VULTR, "gcp": GCP, "dra": DRA, "mig": MIG}  # a search that names no ground plays none of these
NAMED = {**ALL, **BY_NAME, "lambda-sizes": SIZES}
CLOUDS = (GCP, LAMBDA, PAPERSPACE, RUNPOD, VAST, VULTR, OWN)
