# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's worker configuration: the user's template as the base, and what must hold merged in as data."""

from __future__ import annotations

import copy
import re
import typing as t
from urllib.parse import urlsplit

from ..core.errors import InvalidInput
from ..model import Lane, Taint
from ..model.labels import INSTANCE_TYPE_LABEL, NODEPOOL_LABEL, PREFIX, PROVISIONED_LABEL
from ..model.mesh import Tunnel
from ..model.names import label_value
from ..planner.offers.gpu_models import canonical
from ..planner.provisioning import wireguard_rules
from . import patches, wireguard
from .images.nvidia import Generation, generation, kernel_modules, mismatches
from .releases.tables import minor
from .spec import NodeSpec, plain
from .template import Document, at, fields_at, items_at, machine_document, of_kind, parse, render
from .validation.rules import may_set
from .wireguard import held_of

TAILNET = "100.64.0.0/10"
KUBELET_IMAGE = "ghcr.io/siderolabs/kubelet"
_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,63}}$){_LABEL}([.]{_LABEL})*")


def build(spec: NodeSpec, template: str | None = None) -> list[Document]:
    """The documents for one node. ``template`` None takes the built-in one.

    The template decides everything but what makes the node ours: identity, secrets, endpoint, names, taints, labels under tgp.io,
    the mesh service and the GPU's kernel modules. Raises InvalidInput when the template or the spec cannot give a worker.
    """
    _complete(spec)
    documents = parse(render(WORKER if template is None else template, spec.variables()), "The rendered machine config template")
    config = machine_document(documents)
    if config is None:
        raise InvalidInput("The machine config template has no machine configuration (a document without kind).")
    _refuse_secrets(config)
    config["version"] = "v1alpha1"
    _machine(spec, _part(config, "machine"), documents)
    _cluster(spec, _part(config, "cluster"))
    _hostname(spec, config, documents)
    if spec.mesh.backend == "tailscale":
        _tailscale(spec, documents)
    if spec.tunnel is not None:
        wireguard.write(spec, config, documents)
    mirrors(spec, config, documents)
    if spec.patches:
        _patched(spec, documents)
    if spec.tunnel is not None:
        wireguard.check_subnets(spec, machine_document(documents) or config)
    return documents


def _patched(spec: NodeSpec, documents: list[Document]) -> None:
    """The class's patches laid over all of it: they may decide everything but what makes the node ours."""
    before = held(documents, spec.every_taint, spec.tunnel)
    variables = spec.variables()
    for number, text in enumerate(spec.patches, 1):
        label = f"talosConfig.patches[{number - 1}]"
        pieces = patches.read(render(text, variables, label), label)
        patches.apply(documents, pieces, label)
    problems = changed(before, held(documents, spec.every_taint, spec.tunnel))
    if problems:
        raise InvalidInput("The patches of talosConfig cannot be used.", problems=problems, node=spec.name)


def _complete(spec: NodeSpec) -> None:
    problems = []
    if not _NAME.fullmatch(spec.name):
        problems.append(f"The name {spec.name!r} is not a host name: small letters, digits, dots and dashes, 63 at most.")
    if not spec.api_endpoint:
        problems.append("No control plane endpoint is known; give it (https://host:6443), a secrets bundle does not contain it.")
    elif not spec.api_endpoint.startswith("https://"):
        problems.append(f"The control plane endpoint {spec.api_endpoint!r} must start with https://.")
    if not spec.bootstrap_token:
        problems.append("There is no bootstrap token for this node, so it could not join.")
    if spec.mesh.backend == "tailscale" and not spec.auth_key:
        problems.append("The mesh is tailscale and there is no enrolment key for this node.")
    if spec.mesh.backend == "wireguard" and spec.tunnel is None:
        problems.append("The mesh is wireguard and there is no tunnel for this node: key, address, and the hub's key and endpoint.")
    if spec.tunnel is not None:
        problems += wireguard_rules.problems(spec.tunnel)
    if spec.mesh.backend != "wireguard" and spec.tunnel is not None:
        problems.append(f"There is a WireGuard tunnel for this node, and its mesh is {spec.mesh.backend}.")
    if spec.login_server and not spec.login_server.startswith(("https://", "http://")):
        problems.append(f"The login server {spec.login_server!r} must be a URL.")
    if spec.lane is not Lane.KUBELET:
        problems += _image(spec)
    if problems:
        raise InvalidInput(f"No configuration can be made for node {spec.name}.", problems=problems, node=spec.name)


def _image(spec: NodeSpec) -> list[str]:
    """Whether an image can serve this node: a driver for its GPU, and the mesh. What is not known of the image is not judged."""
    models = [spec.model] if spec.nvidia and spec.model else []
    if spec.extensions is None:
        old = [model for model in models if generation(canonical(model) or "") is Generation.OLD]
        return [
            f"{model} is too old for the drivers of Talos images; take a Pascal card or newer, or lane kubelet." for model in old
        ]
    warnings = mismatches(spec.extensions, models, spec.talos_version)
    if spec.mesh.backend == "tailscale" and "siderolabs/tailscale" not in spec.extensions:
        warnings.append("The image has no extension siderolabs/tailscale, so the node could not enter the mesh.")
    return warnings


def _refuse_secrets(config: Document) -> None:
    """What would be overwritten here silently, and must not be in anybody's worker template."""
    problems = [
        f"{path}.key: the private key of a CA must never be in a worker's template; take it out."
        for path in ("machine.ca", "cluster.ca")
        if at(config, f"{path}.key") is not None
    ]
    if at(config, "machine.type") not in (None, "worker"):
        problems.append(f"machine.type is {at(config, 'machine.type')!r}; a rented GPU node must be a worker.")
    if problems:
        raise InvalidInput("The machine config template cannot be used.", problems=problems)


def _part(parent: Document, key: str) -> Document:
    """The mapping under ``key``, made when absent."""
    value = parent.get(key)
    if value is None:
        value = parent[key] = {}
    if not isinstance(value, dict):
        raise InvalidInput(f"The machine config template has something other than a mapping in {key}.")
    return t.cast(Document, value)


def _machine(spec: NodeSpec, machine: Document, documents: list[Document]) -> None:
    machine["type"] = "worker"
    machine["token"] = spec.secrets.trustd_token
    machine["ca"] = {"crt": spec.secrets.os_ca_crt}
    kubelet = _part(machine, "kubelet")
    kubelet.setdefault("image", f"{KUBELET_IMAGE}:v{plain(spec.kubernetes_version)}")
    extra = _part(kubelet, "extraConfig")
    extra["registerWithTaints"] = _taints(spec, extra.get("registerWithTaints"))
    if spec.mesh.backend == "tailscale":
        _part(kubelet, "nodeIP").setdefault("validSubnets", [TAILNET])
    elif spec.tunnel is not None:
        _part(kubelet, "nodeIP").setdefault("validSubnets", [spec.tunnel.network])
    if spec.installer_image or spec.install_disk:
        install = _part(machine, "install")
        if spec.installer_image:
            install.setdefault("image", spec.installer_image)
        if spec.install_disk and "diskSelector" not in install:
            install.setdefault("disk", spec.install_disk)
    labels = _part(machine, "nodeLabels")
    itype = labels.get(INSTANCE_TYPE_LABEL) or label_value(spec.instance_type)
    labels.update({key: value for key, value in spec.labels.items() if may_set(key)})
    labels.update({NODEPOOL_LABEL: spec.pool, PROVISIONED_LABEL: "true"})
    if itype:
        labels[INSTANCE_TYPE_LABEL] = itype
    if spec.annotations:
        _part(machine, "nodeAnnotations").update(spec.annotations)
    if spec.nvidia and spec.lane is not Lane.KUBELET:
        _nvidia(spec, machine, documents)


def _taints(spec: NodeSpec, given: t.Any) -> list[dict[str, str]]:
    """All of ours; then what the template registers beyond them. One per key and effect."""
    by_key: dict[tuple[str, str], dict[str, str]] = {}
    for taint in spec.every_taint:
        entry = {"key": taint.key, "value": taint.value, "effect": taint.effect}
        by_key[taint.key, taint.effect] = {key: value for key, value in entry.items() if value}
    if given is not None and not isinstance(given, list):
        raise InvalidInput("machine.kubelet.extraConfig.registerWithTaints of the template must be a list of taints.")
    for entry in given or ():
        if not isinstance(entry, dict):
            raise InvalidInput("machine.kubelet.extraConfig.registerWithTaints: write each taint as key, value, effect.")
        by_key.setdefault((str(entry.get("key")), str(entry.get("effect"))), entry)
    return list(by_key.values())


def _nvidia(spec: NodeSpec, machine: Document, documents: list[Document]) -> None:
    wanted = kernel_modules(canonical(spec.model) or "")
    named = [document.get("name") for document in documents if document.get("kind") == "KernelModuleConfig"]
    if named:  # of Talos 1.14; beside the field it would be an error
        missing = (name for name in wanted if name not in named)
        documents += [{"apiVersion": "v1alpha1", "kind": "KernelModuleConfig", "name": name} for name in missing]
    else:
        kernel = _part(machine, "kernel")
        given = kernel.get("modules") or []
        if not isinstance(given, list):
            raise InvalidInput("machine.kernel.modules of the template must be a list.")
        present = [module.get("name") for module in given if isinstance(module, dict)]
        kernel["modules"] = [*given, *({"name": name} for name in wanted if name not in present)]
    sysctls = _part(machine, "sysctls")
    sysctls.setdefault("kernel.kexec_load_disabled", "1")  # many GPUs do not survive the kexec with which Talos reboots
    if (minor(spec.talos_version) or (1, 13)) <= (1, 12):
        sysctls.setdefault("net.core.bpf_jit_harden", "1")  # the container library before CDI needs it


def _cluster(spec: NodeSpec, cluster: Document) -> None:
    secrets = spec.secrets
    facts = {"id": secrets.cluster_id, "secret": secrets.cluster_secret, "clusterName": spec.cluster_name or secrets.cluster_name}
    cluster.update({key: value for key, value in facts.items() if value})
    cluster["token"] = spec.bootstrap_token
    cluster["ca"] = {"crt": secrets.k8s_ca_crt}
    _part(cluster, "controlPlane")["endpoint"] = spec.api_endpoint
    network = {
        "dnsDomain": secrets.dns_domain,
        "podSubnets": list(secrets.pod_subnets),
        "serviceSubnets": list(secrets.service_subnets),
    }
    for key, value in network.items():
        if value:  # the cluster's own facts beat what a template says of them
            _part(cluster, "network")[key] = value


def _hostname(spec: NodeSpec, config: Document, documents: list[Document]) -> None:
    machine = config["machine"]
    network = machine.get("network")
    if (minor(spec.talos_version) or (1, 12)) < (1, 12):
        _part(machine, "network")["hostname"] = spec.name
        return
    if isinstance(machine.get("features"), dict):
        machine["features"].pop("stableHostname", None)  # an old field beside the new document is an error
    if isinstance(network, dict):
        network.pop("hostname", None)
        if not network:
            del machine["network"]
    _replace(documents, {"apiVersion": "v1alpha1", "kind": "HostnameConfig", "hostname": spec.name})


def _tailscale(spec: NodeSpec, documents: list[Document]) -> None:
    given = of_kind(documents, "ExtensionServiceConfig", "tailscale") or {}
    environment: dict[str, str] = {}
    for entry in items_at(given, "environment"):
        name, _equals, value = str(entry).partition("=")
        environment[name] = value
    flags = environment.pop("TS_EXTRA_ARGS", "").split()
    for flag in mesh_flags(spec):
        if flag.partition("=")[0] not in {given_flag.partition("=")[0] for given_flag in flags}:
            flags.append(flag)
    environment |= {
        "TS_AUTHKEY": spec.auth_key,
        "TS_HOSTNAME": spec.name,
        "TS_AUTH_ONCE": "true",  # a second login with the used key could log the node out
        "TS_ACCEPT_DNS": "false",
    }
    if flags:
        environment["TS_EXTRA_ARGS"] = " ".join(flags)
    if spec.mesh.advertise_routes:
        environment["TS_ROUTES"] = ",".join(spec.mesh.advertise_routes)
    document: Document = {"apiVersion": "v1alpha1", "kind": "ExtensionServiceConfig", "name": "tailscale"}
    if given.get("configFiles"):
        document["configFiles"] = given["configFiles"]
    document["environment"] = [f"{name}={value}" for name, value in environment.items()]
    _replace(documents, document)


def mesh_flags(spec: NodeSpec) -> list[str]:
    """Flags of ``tailscale up`` that the class asks for. Tags belong to the key, so none here."""
    flags = [f"--login-server={spec.login_server}"] if spec.login_server else []
    return [*flags, "--accept-routes"] if spec.mesh.accept_routes else flags


def _replace(documents: list[Document], document: Document) -> None:
    """Put ``document`` where one of its kind and name stood, or at the end."""
    same = [n for n, d in enumerate(documents) if d.get("kind") == document["kind"] and d.get("name") == document.get("name")]
    for number in reversed(same[1:]):
        del documents[number]
    if same:
        documents[same[0]] = document
    else:
        documents.append(document)


# ---- what makes a node ours, and which no patch may change: who it is, with what secrets it joins, and how it is distinguished from others

_FIELDS = (
    "machine.type", "machine.token", "machine.ca", "cluster.token", "cluster.ca", "cluster.id", "cluster.secret",
    "cluster.controlPlane.endpoint", "machine.network.hostname",
)  # fmt: skip
_MESH = ("TS_AUTHKEY", "TS_HOSTNAME", "TS_AUTH_ONCE")


def held(documents: t.Sequence[Document], taints: t.Sequence[Taint], tunnel: Tunnel | None = None) -> dict[str, t.Any]:
    """Field → value of all that must stay as it is; ``taints`` are those with which the node must register."""
    config = machine_document(documents)
    values: dict[str, t.Any] = {path: copy.deepcopy(at(config, path)) for path in _FIELDS}
    for key, value in fields_at(config, "machine.nodeLabels").items():
        if key.startswith(PREFIX):
            values[f"machine.nodeLabels.{key}"] = value
    host = of_kind(documents, "HostnameConfig")
    values["HostnameConfig.hostname"] = at(host, "hostname")
    service = of_kind(documents, "ExtensionServiceConfig", "tailscale")
    environment = dict(str(entry).partition("=")[::2] for entry in items_at(service, "environment"))
    values |= {f"ExtensionServiceConfig tailscale: {name}": environment.get(name) for name in _MESH}
    registered = [
        (taint.get("key"), taint.get("value", ""), taint.get("effect"))
        for taint in items_at(config, "machine.kubelet.extraConfig.registerWithTaints")
        if isinstance(taint, dict)
    ]
    for taint in taints:
        where = f"machine.kubelet.extraConfig.registerWithTaints: {taint.key}"
        values[where] = (taint.key, taint.value, taint.effect) in registered
    return values if tunnel is None else values | copy.deepcopy(held_of(documents, config, tunnel))


def changed(before: t.Mapping[str, t.Any], after: t.Mapping[str, t.Any]) -> list[str]:
    """A sentence for each field that is no longer what it was. No values: some are secrets."""
    return [
        f"{field}: a patch may not change this; it makes the node what the documents say it is."
        for field in {**before, **after}
        if before.get(field) != after.get(field)
    ]


# ---- mirrors of container registries, in the form that the node's Talos reads

_HOST = re.compile(r"\*|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?")


def mirrors(spec: NodeSpec, config: Document, documents: list[Document]) -> None:
    """Put the node's ``registry_mirrors`` into its configuration. What the template says of the same registry is replaced.

    From Talos 1.12 on a document for each registry; before, and where the template has the old form, a field (never both).
    """
    if not spec.registry_mirrors:
        return
    problems = mirror_problems(spec.registry_mirrors)
    if problems:
        raise InvalidInput("The registry mirrors cannot be used.", problems=problems, node=spec.name)
    old = (minor(spec.talos_version) or (1, 12)) < (1, 12) or bool(at(config, "machine.registries"))
    for registry, urls in spec.registry_mirrors.items():
        if old:
            machine = config["machine"]
            registries = machine.setdefault("registries", {})
            registries.setdefault("mirrors", {})[registry] = {"endpoints": list(urls)}
            continue
        document = of_kind(documents, "RegistryMirrorConfig", registry)
        if document is None:
            document = {"apiVersion": "v1alpha1", "kind": "RegistryMirrorConfig", "name": registry}
            documents.append(document)
        document["endpoints"] = [{"url": url} for url in urls]


def mirror_problems(given: t.Mapping[str, t.Sequence[str]]) -> list[str]:
    """What is wrong with registry → URLs, one sentence each. No URL with a password is repeated."""
    problems = []
    for registry, urls in given.items():
        where = f"registryMirrors.{registry}"
        if not _HOST.fullmatch(registry):
            problems.append(f"{where}: write the registry as images name it (docker.io, ghcr.io, registry.example.org:5000), or *.")
        if not urls:
            problems.append(f"{where}: no mirror is listed.")
        for url in urls:
            parts = urlsplit(url)
            if parts.password or parts.username:
                problems.append(f"{where}: a password does not belong into an address; write a RegistryAuthConfig document.")
            elif parts.scheme not in ("http", "https") or not parts.netloc:
                problems.append(f"{where}: {url!r} is not an address; write https://host.")
    return problems


# ---- the worker template used where a class brings none of its own; the same text as examples/templates/worker.yaml

WORKER = """\
# A complete worker configuration for a GPU node, to start from. Module talos_config uses it word for word where it is given no
# template; a GPUNodeClass has to name one, so that nobody rents machines with a configuration they never saw.
# Written by the collection itself, whatever the template says: secrets, endpoint, host name, taints, the labels under tgp.io,
# the tailscale service with its key, and on NVIDIA machines the kernel modules.
version: v1alpha1
debug: false
machine:
  type: worker
  token: {{ MachineToken }}
  ca:
    crt: {{ ClusterCA }}
  certSANs: [127.0.0.1]
  kubelet:
    image: ghcr.io/siderolabs/kubelet:v{{ KubernetesVersion }}
    defaultRuntimeSeccompProfileEnabled: true
    disableManifestsDirectory: true
  nodeLabels:
    tgp.io/nodepool: "{{ NodePool }}"
    tgp.io/provisioned: "true"
  features:
    diskQuotaSupport: true
    kubePrism: {enabled: true, port: 7445}
    hostDNS: {enabled: true, forwardKubeDNSToHost: true}
cluster:
  id: {{ ClusterID }}
  secret: {{ ClusterSecret }}
  clusterName: "{{ ClusterName }}"
  controlPlane:
    endpoint: {{ ControlPlaneEndpoint }}
  network:
    dnsDomain: cluster.local
    podSubnets: [10.244.0.0/16]
    serviceSubnets: [10.96.0.0/12]
  discovery:
    enabled: true
    registries:
      kubernetes: {disabled: true}
      service: {}
"""
