# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPUNodeClass document, valid by its schema, as the model's NodeClass."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
import typing as t
from decimal import Decimal
from urllib.parse import urlsplit

from ..core.errors import InvalidInput
from ..model import CloudChoice, Guard, Hub, HubSecrets, Lane, Machine, MeshChoice, NodeClass, Quality, SpendingBudget, VolumeMount
from ..planner.garbage_collection.silence import SILENT_FOR
from ..planner.offers import gpu_models
from ..providers.disk_images import ImagePolicy
from ..providers.registry import CAPABILITIES, ENTRIES, canonical_cloud
from ..providers.webhook.machines import LINK_LOCAL, is_link_local
from ..units.calendar import zone
from ..units.values import parse_money
from .faults import allowed_namespaces, unknown_field, validator
from .reading import Reader
from .schemas import KINDS
from .wireguard import hub_of, section_of, without_key

OWN_MACHINES = "webhook"
BID_MARGIN = Decimal("0.1")
_FACTORY_IMAGE = re.compile(r"/[0-9a-f]{64}(?:[:@]|$)")  # a schematic's id in the name of an installer


def node_class(document: Spec, reader: Reader, machines: t.Sequence[Machine], *, of_operator: bool = False) -> NodeClass:
    """The class. ``machines``: own machines for an entry that lists none. ``of_operator``: the operator of the run wrote it."""
    spec: Spec = document["spec"]
    talos: Spec = spec.get("talosConfig", {})
    names_content = talos.get("schematic") is not None or _FACTORY_IMAGE.search(talos.get("image", "")) is not None
    choices = _choices(spec["providers"], reader, machines, of_operator, names_content)
    needs: Spec = spec.get("instanceRequirements", {})
    limits: Spec = spec.get("limits", {})
    path = "spec.instanceRequirements"
    models = [reader.model(name, f"{path}.gpuTypes[{place}]") for place, name in enumerate(needs.get("gpuTypes", ()))]
    disk = reader.mib(needs.get("minDisk"), f"{path}.minDisk")
    cost = reader.money(limits.get("maxHourlyCost"), "spec.limits.maxHourlyCost")
    template = template_text(talos, reader)
    mesh = mesh_choice(spec, choices, reader)
    for field, quantity in (("maxNodes", "the number of machines"), ("maxHourlyCost", "what they cost together")):
        if field not in limits:
            reader.warn(f"spec.limits.{field}", f"is not set, so {quantity} is not limited.")
    return dataclasses.replace(
        with_talos(document["metadata"]["name"], choices, mesh, talos, template, reader),
        gpu_types=tuple(model for model in models if model),
        gpu_memory_mib=reader.mib(needs.get("minGpuMemory"), f"{path}.minGpuMemory"),
        gpu_count=needs.get("gpuCount"),
        min_vcpus=needs.get("minVcpus"),
        min_memory_mib=reader.mib(needs.get("minMemory"), f"{path}.minMemory"),
        min_disk_gib=None if disk is None else -(-disk // 1024),
        regions=tuple(
            reader.region(region, f"{path}.regions[{place}]", own_regions(choices))
            for place, region in enumerate(needs.get("regions", ()))
        ),
        spot_allowed=needs.get("spotAllowed", False),
        spot_discount_min=share(needs.get("spotDiscountMin"), f"{path}.spotDiscountMin", reader, most=100),
        quality=quality(needs, reader, path),
        max_nodes=limits.get("maxNodes"),
        max_hourly_cost=cost,
        resources=reader.gpu_limits(limits),
        strategy=spec.get("strategy", "weighted"),
        budget=budget(spec, reader),
        allowed_namespaces=allowed_namespaces(document),
        guard=guard(spec, choices, reader),
        generation=fingerprint(
            [without_key(talos), template, spec.get("tailscaleConfig"), mesh.backend, *filter(None, [spec.get("wireguardConfig")])]
        ),
    )


def with_talos(
    name: str, choices: tuple[CloudChoice, ...], mesh: MeshChoice, talos: Spec, template: str | None, reader: Reader
) -> NodeClass:
    """A class of these providers and this mesh, with what the section ``talosConfig`` says; the rest has its defaults. ``template``: the text
    of its template."""
    return NodeClass(
        name=name,
        clouds=choices,
        template=template,
        template_ref=reader.secret_ref(talos.get("templateRef")),
        talos_image=talos.get("image", ""),
        talos_schematic=talos.get("schematic"),
        talos_patches=tuple(talos.get("patches", ())),
        registry_mirrors=_mirrors(talos),
        mesh=mesh,
    )


_SHORTEST_GUARD = 3600


def guard(spec: Spec, choices: t.Sequence[CloudChoice], reader: Reader) -> Guard | None:
    """When machines power themselves off; None = nothing is said."""
    section: Spec | None = spec.get("guard")
    if section is None:
        return None
    if not any(Lane.KUBELET in CAPABILITIES[choice.cloud].lanes for choice in choices):
        reader.warn("spec.guard", "has no effect: no provider of this class has machines of lane kubelet.")
    found: dict[str, int | None] = {}
    for field, default in (("silentFor", SILENT_FOR), ("controllerSilentFor", None)):
        found[field] = seconds = reader.duration_or_never(section.get(field), f"spec.guard.{field}", default)
        if seconds is not None and seconds < _SHORTEST_GUARD:
            reader.fault(
                f"spec.guard.{field}", "is too short: a restart of the API server must not end machines. Use 1h or more, or Never."
            )
    return Guard(found["silentFor"], found["controllerSilentFor"])


def fingerprint(content: t.Any) -> str:
    """A short hash of JSON-like data, the same for the same content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _mirrors(talos: Spec) -> dict[str, tuple[str, ...]]:
    """Registry → URLs of its mirrors."""
    return {registry: tuple(urls) for registry, urls in talos.get("registryMirrors", {}).items()}


def template_text(talos: Spec, reader: Reader) -> str | None:
    """The template itself, if it is inline or in a file. More than one source is a fault."""
    given = [name for name in ("machineConfigTemplate", "templateRef", "machineConfigTemplateFile") if name in talos]
    if len(given) > 1:
        reader.fault("spec.talosConfig", f"{' and '.join(given)} exclude each other. Keep one of them.")
    name = talos.get("machineConfigTemplateFile")
    if name is None:
        text: str | None = talos.get("machineConfigTemplate")
        return text
    file = pathlib.Path(reader.source.rpartition("#")[0] or reader.source).parent / pathlib.Path(name).expanduser()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # also of what is not text, or no name of a file
        reader.fault("spec.talosConfig.machineConfigTemplateFile", f"{file} cannot be read: {error}.")
        return None


def mesh_choice(spec: Spec, choices: t.Sequence[CloudChoice], reader: Reader) -> MeshChoice:
    """The mesh. Without a word about it, rented machines use tailscale and a class of own machines only uses none."""
    section, place = _tailscale(spec, reader)
    rents = any(choice.cloud != OWN_MACHINES for choice in choices)
    tunnel, tunnels_place = section_of(spec)
    default = "wireguard" if tunnel is not None else "tailscale" if section or rents else "none"
    backend = spec.get("networking", {}).get("backend", default)
    for field, given, its in ((place, section, "tailscale"), (tunnels_place, tunnel, "wireguard")):
        if given and backend != its:
            reader.fault(field, f"has no effect with networking.backend {backend}. Remove one of the two.")
    if backend == "wireguard" and tunnel is None:
        reader.fault(tunnels_place, "this field is missing; networking.backend wireguard needs it.")
    if backend == "wireguard" and any(
        choice.cloud == OWN_MACHINES and choice.settings.get("payload", "none") != "none" for choice in choices
    ):
        way = "Set payload none and let them keep their own."
        reader.fault(tunnels_place, f"own machines that are given a configuration enter no tunnel. {way}")
    if backend == "wireguard":
        reader.warn(
            tunnels_place,
            "is the older way in: its hub is a machine you keep yourself, and all traffic between nodes crosses it. "
            "The default, tailscale, needs none.",
        )
    hub = hub_of(spec, reader) if backend == "wireguard" else None
    return MeshChoice(
        backend=backend,
        hub=hub if isinstance(hub, Hub) else None,
        hub_secrets=hub if isinstance(hub, HubSecrets) else None,
        tags=tuple(section.get("tags", ())),
        ephemeral=section.get("ephemeral", True),
        accept_routes=section.get("acceptRoutes", False),
        advertise_routes=reader.networks(section.get("advertiseRoutes", ()), f"{place}.advertiseRoutes"),
    )


def _tailscale(spec: Spec, reader: Reader) -> tuple[Spec, str]:
    """tailscaleConfig with its place: beside talosConfig, or in it, where the operator's types have it."""
    inner: Spec = spec.get("talosConfig", {}).get("tailscaleConfig", {})
    if not inner:
        return spec.get("tailscaleConfig", {}), "spec.tailscaleConfig"
    place = "spec.talosConfig.tailscaleConfig"
    if "tailscaleConfig" in spec:
        reader.fault(place, "spec.tailscaleConfig is there as well. Remove one of the two.")
    return inner, place


def _choices(
    providers: t.Sequence[Spec], reader: Reader, machines: t.Sequence[Machine], of_operator: bool, names_content: bool
) -> tuple[CloudChoice, ...]:
    choices: dict[str, CloudChoice] = {}
    for place, entry in enumerate(providers):
        path = f"spec.providers[{place}]"
        cloud = reader.cloud(entry["name"], f"{path}.name")
        if cloud is None:
            continue
        if cloud in choices:
            reader.fault(path, f"{cloud} is listed twice.")
        for field in ("bidMargin", "spotDiscountMin"):
            if field in entry and not CAPABILITIES[cloud].spot:
                reader.fault(f"{path}.{field}", f"{cloud} rents no interruptible machines. Remove it.")
        margin = share(entry.get("bidMargin"), f"{path}.bidMargin", reader, most=900)
        choices[cloud] = CloudChoice(
            cloud=cloud,
            priority=entry.get("priority", 0),
            enabled=entry.get("enabled", True),
            credentials=reader.secret_ref(entry.get("credentialsRef")),
            machines=_machines(cloud, entry, path, reader, machines),
            settings=_with_policy(
                cloud, _settings(cloud, entry.get("settings", {}), f"{path}.settings", reader), names_content, path, reader
            ),
            quality=of_nodes(ENTRIES[cloud].settings, entry.get("settings", {}), reader, f"{path}.settings"),
            bid_margin=BID_MARGIN if margin is None else margin,
            spot_discount_min=share(entry.get("spotDiscountMin"), f"{path}.spotDiscountMin", reader, most=100),
            key_for_machines=of_operator and "credentialsRef" in entry and ("machines" in entry or "nodeGroups" in entry),
            volumes=_volumes(cloud, entry.get("volumes", ()), f"{path}.volumes", reader),
        )
    if choices and not any(choice.enabled for choice in choices.values()):
        reader.fault("spec.providers", "none is enabled.")
    return tuple(choices.values())


def _settings(cloud: str, settings: Spec, path: str, reader: Reader) -> dict[str, t.Any]:
    schemas = ENTRIES[cloud].settings
    for name, value in settings.items():
        if name not in schemas:
            text = (
                unknown_field(KINDS["GPUNodeClass"], path, name, schemas)
                if schemas
                else f"{path}.{name}: {cloud} takes no settings in this version."
            )
            reader.fault(*t.cast("tuple[str, str]", tuple(text.split(": ", 1))))
            continue
        for error in validator(schemas[name]).iter_errors(value):
            wanted = ", ".join(schemas[name]["enum"]) if error.validator == "enum" else ""
            reader.fault(
                f"{path}.{name}", f"{value!r} is not possible here. Use one of {wanted}." if wanted else f"{error.message}."
            )
        if cloud == OWN_MACHINES and name.endswith("Endpoint") and isinstance(value, str):
            _check_address(value, f"{path}.{name}", reader)
    return dict(settings)


def _volumes(cloud: str, listed: t.Sequence[Spec], path: str, reader: Reader) -> tuple[VolumeMount, ...]:
    """The existing volumes of a providers entry. Whether they exist is asked before anything is rented (L-51)."""
    facts = CAPABILITIES[cloud]
    if listed and not facts.volumes:
        reader.fault(path, f"{cloud} mounts no existing volumes in this version. Remove it.")
        return ()
    if len(listed) > facts.volumes:
        reader.fault(path, f"a machine of {cloud} mounts at most {facts.volumes}, and {len(listed)} are listed.")
    for field in ("name", "mountPath"):
        values = [entry[field] for entry in listed]
        for value in sorted({value for value in values if values.count(value) > 1}):
            reader.fault(path, f"{field} {value} is listed twice.")
    for place, entry in enumerate(listed):
        if facts.volume_paths and not re.fullmatch(facts.volume_paths, entry["mountPath"]):
            reader.fault(
                f"{path}[{place}].mountPath", f"{entry['mountPath']!r} does not match {facts.volume_paths}, as {cloud} wants it."
            )
    return tuple(
        VolumeMount(
            entry["name"], entry["mountPath"], reader.money(entry.get("pricePerGBMonth"), f"{path}[{place}].pricePerGBMonth")
        )
        for place, entry in enumerate(listed)
    )


def _with_policy(cloud: str, settings: dict[str, t.Any], names_content: bool, path: str, reader: Reader) -> dict[str, t.Any]:
    """The settings with the policy for images of Talos: IfMissing by default, where the class says what is in the image, names none, and the
    provider can make one. ``names_content``: the class has a schematic, or an installer that is made of one."""
    entry, place = ENTRIES[cloud], f"{path}.settings"
    if not entry.image_setting:
        return settings
    needs_bucket = "imageBucket" in entry.settings
    for field in ("imagePolicy", "imageBucket"):
        if field in settings and entry.image_setting in settings:
            reader.fault(
                f"{place}.{field}", f"has no effect with {entry.image_setting}, which names the image. Remove one of the two."
            )
            return settings
    if "imagePolicy" in settings:
        if not names_content:
            lacks = "talosConfig has neither a schematic nor an image of the Image Factory"
            reader.fault(f"{place}.imagePolicy", f"{lacks}, so what is in the image is not known. Add talosConfig.schematic.")
        elif needs_bucket and "imageBucket" not in settings and settings["imagePolicy"] != ImagePolicy.NEVER.value:
            reader.fault(
                f"{place}.imageBucket",
                "this field is missing; an image is made of a file in a bucket. Name a bucket of the project.",
            )
        return settings
    can_make = names_content and (not needs_bucket or "imageBucket" in settings)
    return {**settings, "imagePolicy": ImagePolicy.IF_MISSING.value} if can_make else settings


def _machines(cloud: str, entry: Spec, path: str, reader: Reader, given: t.Sequence[Machine]) -> tuple[Machine, ...]:
    listed = [
        (f"{path}.{word}[{place}]", item) for word in ("machines", "nodeGroups") for place, item in enumerate(entry.get(word, ()))
    ]
    if cloud != OWN_MACHINES:
        if listed:
            reader.fault(path, f"machines are for {OWN_MACHINES} only; {cloud} has its own. Remove them.")
        return ()
    machines: dict[str, Machine] = {}
    for place, item in listed:
        machine = _machine(item, place, reader)
        if machine.name in machines:
            reader.fault(f"{place}.name", f"{machine.name} is listed twice.")
        machines[machine.name] = machine
    if not listed and not given:
        reader.fault(
            path, "no machines are listed. Give machines (or nodeGroups), or the *_GPU_COUNT variables of the environment."
        )
    return tuple(machines.values()) or tuple(given)


def _machine(spec: Spec, path: str, reader: Reader) -> Machine:
    for field in ("scaleUpEndpoint", "scaleDownEndpoint", "statusEndpoint"):
        if field in spec:
            _check_address(spec[field], f"{path}.{field}", reader)
    wanted = (reader.model(spec["gpuType"], f"{path}.gpuType") or "") if "gpuType" in spec else ""
    card = gpu_models.parse(wanted) or gpu_models.Gpu("")
    return Machine(
        name=spec["name"],
        gpu_count=spec["gpuCount"],
        scale_up_endpoint=spec["scaleUpEndpoint"],
        scale_down_endpoint=spec["scaleDownEndpoint"],
        gpu_type=card.model,
        gpu_memory_mib=spec.get("gpuMemoryMib") or card.memory_mib or gpu_models.memory_mib(card.model),
        node_name=spec.get("nodeName", ""),
        status_endpoint=spec.get("statusEndpoint", ""),
        hourly_cost=reader.money(spec.get("hourlyCost"), f"{path}.hourlyCost") or Decimal(0),
        region=spec.get("region", ""),
    )


def is_own(entry: Spec) -> bool:
    """Whether a providers entry stands for own machines."""
    return canonical_cloud(str(entry.get("name"))) == OWN_MACHINES


def _check_address(text: str, path: str, reader: Reader) -> None:
    if not _is_address(text):
        reader.fault(path, f"{text!r} is neither an http or https address nor a path below webhook_url.")
    elif is_link_local(urlsplit(text).hostname or ""):
        reader.fault(path, f"leads to {urlsplit(text).hostname}, {LINK_LOCAL}")


def _is_address(text: str) -> bool:
    """A whole URL, or an absolute path: many machines behind one power service need its address said only once (webhook_url)."""
    parts = urlsplit(text)
    return (parts.scheme in ("http", "https") and bool(parts.netloc)) or (text.startswith("/") and not parts.netloc)


def own_regions(choices: t.Iterable[CloudChoice]) -> list[str]:
    """Where the own machines of a class stand."""
    return [machine.region for choice in choices for machine in choice.machines]


# ---- what a class says of the hosts it wants and of prices by auction: shares, and the specs of planner/offers/requirements.py

_SHARE = re.compile(r"(\d{1,3}) ?%?|(\d{1,3}\.\d+) ?%")  # 0.95 without a sign would be read as less than one per cent


def quality(needs: t.Mapping[str, t.Any], reader: Reader, path: str) -> Quality:
    """The specs under ``instanceRequirements`` (``path``) about hosts."""
    return Quality(
        min_reliability=share(needs.get("minReliability"), f"{path}.minReliability", reader, most=100),
        verified=needs.get("verified", False),
        min_cuda=needs.get("minCuda", ""),
        min_bandwidth=needs.get("minBandwidth"),
        static_ip=needs.get("staticIp", False),
        min_ports=needs.get("minPorts"),
        min_duration=reader.duration(needs["minDuration"], f"{path}.minDuration", 0) if "minDuration" in needs else None,
    )


def of_nodes(supported: t.Container[str], settings: t.Mapping[str, t.Any], reader: Reader, path: str) -> Quality:
    """What the ``settings`` (``path``) of a cloud that has such settings say of hosts of nodes."""
    bandwidth = settings.get("minBandwidth") if "minBandwidth" in supported else None
    reliability = settings.get("minReliability") if "minReliability" in supported else None
    return Quality(
        min_reliability=share(reliability, f"{path}.minReliability", reader, most=100),
        min_bandwidth=bandwidth if isinstance(bandwidth, int) else None,
    )


def share(value: t.Any, path: str, reader: Reader, *, most: int) -> Decimal | None:
    """A share of one of a text like "10%" or a number of per cent, at most ``most`` per cent; None when not given or not possible."""
    if value is None:
        return None
    match = _SHARE.fullmatch(str(value).strip())
    number = Decimal(match[1] or match[2]) if match else None
    if number is None or number > most:
        reader.fault(
            path, f'{value!r} is not a percentage from 0% to {most}%. Write text like "10%", or a whole number of per cent.'
        )
        return None
    return number / 100


# ---- ``spec.budget`` of a class, a pool or a request: what may be spent in a day, a week or a month

BUDGETS_PATH = "spec.budget"


def budget(spec: Spec, reader: Reader) -> SpendingBudget | None:
    """The budget of a document; None when it names none, or a faulty one."""
    section = spec.get("budget")
    if section is None:
        return None
    time_zone = section.get("timeZone")
    for field, check in (("amount", lambda: _dollars(section["amount"])), ("timeZone", lambda: zone(time_zone or "UTC"))):
        try:
            check()
        except InvalidInput as error:
            reader.fault(f"{BUDGETS_PATH}.{field}", str(error))
            return None
    return budget_of(section["period"], section["amount"], time_zone, section.get("softPercent"), section.get("action"))


def budget_of(period: str, amount: t.Any, time_zone: str | None, soft_percent: int | None, action: str | None) -> SpendingBudget:
    """A budget of its parts, None = the usual. InvalidInput for an amount or a time zone that is none."""
    dollars = _dollars(amount)
    zone(time_zone or "UTC")
    return SpendingBudget(
        period=period,
        amount=dollars,
        time_zone=time_zone or "UTC",
        soft_percent=Decimal(80 if soft_percent is None else soft_percent),
        action=action or "stop_launch",
    )


def _dollars(amount: t.Any) -> Decimal:
    dollars = parse_money(amount)
    if dollars == 0:
        raise InvalidInput("A budget of 0 lets nothing be launched.", remedy="Give an amount above 0, or leave the budget out.")
    return dollars


Spec = t.Mapping[str, t.Any]
