# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of labels, annotations and taints that the collection writes or reads, ours and those of others, in one place."""

from __future__ import annotations

# ---- Our own keys

PREFIX = "tgp.io/"
API_VERSION = "tgp.io/v1"
API_PATH = "/apis/tgp.io/v1"

# ---- Labels of nodes, and of the requirements that ask for them

NODEPOOL_LABEL = "tgp.io/nodepool"
NODECLASS_LABEL = "tgp.io/nodeclass"
PROVISIONED_LABEL = "tgp.io/provisioned"
PROVIDER_LABEL = "tgp.io/provider"
CLUSTER_LABEL = "tgp.io/cluster"
GENERATION_LABEL = "tgp.io/generation"
INSTANCE_ID_LABEL = "tgp.io/instance-id"
GPU_TYPE_LABEL = "tgp.io/gpu-type"
GPU_COUNT_LABEL = "tgp.io/gpu-count"
GPU_MEMORY_LABEL = "tgp.io/gpu-memory"
REGION_LABEL = "tgp.io/region"
SPOT_LABEL = "tgp.io/spot"
RELIABILITY_LABEL = "tgp.io/reliability"
POWER_LIMIT_LABEL = "tgp.io/power-limit"

# ---- For whom pods and machines are (L-45); the keys are options

TEAM_LABEL = "tgp.io/team"
REQUESTER_LABEL = "tgp.io/requester"

# ---- The device plugin that we install

PLUGIN_CONFIG_LABEL = "tgp.io/device-plugin-config"
CONFIG_CHECKSUM_ANNOTATION = "tgp.io/config-checksum"
MANIFEST_HASH_ANNOTATION = "tgp.io/manifest-hash"

# ---- Labels of our records, tokens and Services

CLAIM_LABEL = "tgp.io/claim"
STATE_LABEL = "tgp.io/state"
LEDGER_LABEL = "tgp.io/ledger"
PRICES_LABEL = "tgp.io/prices"
NODE_LABEL = "tgp.io/node"
ACCEPTANCE_LABEL = "tgp.io/acceptance"
PRE_PULL_LABEL = "tgp.io/pre-pull"
BOOTSTRAP_TOKEN_LABEL = "tgp.io/bootstrap-token"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
GPU_TEST_LABEL = "tgp.io/gpu-test"
BENCH_MESH_LABEL = "tgp.io/bench-mesh"
APP_NAME_LABEL = "app.kubernetes.io/name"

# ---- Annotations of nodes and pods

PRICE_HOUR_ANNOTATION = "tgp.io/price-hour"
CREATED_AT_ANNOTATION = "tgp.io/created-at"
ACCEPTED_AT_ANNOTATION = "tgp.io/accepted-at"
ACCEPTANCE_TEST_ANNOTATION = "tgp.io/acceptance-test"
PRE_PULL_IMAGES_ANNOTATION = "tgp.io/pre-pull-images"
IDLE_SINCE_ANNOTATION = "tgp.io/idle-since"
LOW_UTILIZATION_ANNOTATION = "tgp.io/low-utilization"
STOPPED_SINCE_ANNOTATION = "tgp.io/stopped-since"
DRAIN_STARTED_ANNOTATION = "tgp.io/drain-started"
CORDONED_BEFORE_DRAIN_ANNOTATION = "tgp.io/cordoned-before-drain"
TERMINATE_ANNOTATION = "tgp.io/terminate"
HOLD_UNTIL_ANNOTATION = "tgp.io/hold-until"
DO_NOT_DISRUPT_ANNOTATION = "tgp.io/do-not-disrupt"
POWERED_OFF_ANNOTATION = "tgp.io/powered-off"
CHECKPOINT_INTERVAL_ANNOTATION = "tgp.io/checkpoint-interval"
SCALE_UP_ANNOTATION = "tgp.io/scale-up"
PAUSED_ANNOTATION = "tgp.io/paused"
OWNER_PROCESS_ANNOTATION = "tgp.io/owner-process"
PRIVILEGED_REASON_ANNOTATION = "tgp.io/privileged-reason"

# ---- Finalizers of documents and claims that are objects of the cluster

FINALIZERS = {
    "GPUNodeClass": "tgp.io/gpunodeclass-finalizer",
    "GPUNodePool": "tgp.io/gpunodepool-finalizer",
    "GPURequest": "tgp.io/gpurequest-finalizer",
    "GPUNodeClaim": "tgp.io/gpunodeclaim-finalizer",
}

OPERATOR_FINALIZER = "tgp.io/finalizer"  # of the GPURequests of tgp-operator

# ---- Taints

EPHEMERAL_TAINT = "tgp.io/ephemeral"
INITIALIZING_TAINT = "tgp.io/initializing"
DISRUPTED_TAINT = "tgp.io/disrupted"
GPU_LOST_TAINT = "tgp.io/gpu-lost"

# ---- Kubernetes: labels

HOSTNAME_LABEL = "kubernetes.io/hostname"
ARCH_LABEL = "kubernetes.io/arch"
OS_LABEL = "kubernetes.io/os"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"  # on a claim: where its volume is to be made
TOPOLOGY_REGION_LABEL = "topology.kubernetes.io/region"
TOPOLOGY_ZONE_LABEL = "topology.kubernetes.io/zone"
BETA_ARCH_LABEL = "beta.kubernetes.io/arch"
BETA_OS_LABEL = "beta.kubernetes.io/os"
BETA_INSTANCE_TYPE_LABEL = "beta.kubernetes.io/instance-type"
BETA_REGION_LABEL = "failure-domain.beta.kubernetes.io/region"
BETA_ZONE_LABEL = "failure-domain.beta.kubernetes.io/zone"
EXCLUDE_FROM_LOAD_BALANCERS_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
MIRROR_POD_ANNOTATION = "kubernetes.io/config.mirror"

POD_SECURITY_LABELS = tuple(f"pod-security.kubernetes.io/{mode}" for mode in ("enforce", "audit", "warn"))

# ---- NVIDIA: labels

GPU_PRESENT_LABEL = "nvidia.com/gpu.present"
DEVICE_PLUGIN_CONFIG_LABEL = "nvidia.com/device-plugin.config"

# ---- NVIDIA: taints

GPU_XID_TAINT = "nvidia.com/gpu-xid-error"

# ---- Kubernetes: taints

NODE_TAINT_PREFIX = "node.kubernetes.io/"
CLOUD_PROVIDER_TAINT_PREFIX = "node.cloudprovider.kubernetes.io/"
READINESS_TAINT_PREFIX = "readiness.k8s.io/"
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
NETWORK_UNAVAILABLE_TAINT = "node.kubernetes.io/network-unavailable"
UNINITIALIZED_TAINT = "node.cloudprovider.kubernetes.io/uninitialized"

# ---- Cluster Autoscaler, Karpenter and Cluster API

CLUSTER_AUTOSCALER_PREFIX = "cluster-autoscaler.kubernetes.io/"
SAFE_TO_EVICT_ANNOTATION = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_TO_EVICT_LOCAL_VOLUMES_ANNOTATION = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
SCALE_DOWN_DISABLED_ANNOTATION = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
POD_SCALE_UP_DELAY_ANNOTATION = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
KARPENTER_PREFIX = "karpenter.sh/"
KARPENTER_DO_NOT_DISRUPT_ANNOTATION = "karpenter.sh/do-not-disrupt"
CLUSTER_API_PREFIX = "cluster.x-k8s.io/"
CLUSTER_API_DRAIN_LABEL = "cluster.x-k8s.io/drain"

# ---- Tailscale's operator

TAILNET_PREFIX = "tailscale.com/tailnet-"
TAILNET_FQDN_ANNOTATION = "tailscale.com/tailnet-fqdn"
TAILNET_IP_ANNOTATION = "tailscale.com/tailnet-ip"
TAILSCALE_EXPOSE_ANNOTATION = "tailscale.com/expose"
TAILSCALE_HOSTNAME_ANNOTATION = "tailscale.com/hostname"
TAILSCALE_TAGS_ANNOTATION = "tailscale.com/tags"
TAILSCALE_PROXY_CLASS_ANNOTATION = "tailscale.com/proxy-class"

# ---- of pods that have to run at once (L-39)

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
VOLCANO_GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
KUEUE_GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
KUEUE_GROUP_SIZE_ANNOTATION = "kueue.x-k8s.io/pod-group-total-count"
LWS_LABEL = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
LWS_SIZE_ANNOTATION = "leaderworkerset.sigs.k8s.io/size"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"

# ---- ProvisioningRequests (L-42): their class that is ours, a key of their details (machines, separated by commas), and marks of their pods

ATOMIC_CLASS = "tgp.io/atomic"
MACHINES_DETAIL = "tgp.io/machines"

AUTOSCALING_PREFIX = "autoscaling.x-k8s.io/"
CONSUMES_REQUEST_ANNOTATION = "autoscaling.x-k8s.io/consume-provisioning-request"
FORMER_CONSUMES_REQUEST_ANNOTATION = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
