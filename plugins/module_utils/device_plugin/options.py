# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a call of the module wants to have installed: its options and the pools of its documents as :class:`PluginOptions`."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ..core.errors import InvalidInput, lazy
from ..core.task import Task
from ..model import Pool, Toleration
from ..model.labels import DEVICE_PLUGIN_CONFIG_LABEL
from ..model.resources import NVIDIA_GPU, SHARED_GPU
from ..talos.releases.tables import minor
from ..units.values import parse_duration
from .config import DEFAULT_KEY, PluginConfig, advice, faults, key_fault, of_content, of_replicas
from .manifests import SELECTED, TOLERATED, PluginOptions, toleration_object
from .power_limits import PowerLimits, power_limit_warnings

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")


def plugin_options(task: Task, pools: t.Sequence[Pool]) -> PluginOptions:
    """InvalidInput lists every fault of every configuration, and pools whose nodes would not show what the pools say."""
    params = task.params
    configs = (_default_config(task, pools), *_further_configs(task))
    problems = [sentence for pool in pools if (sentence := _disagreement(pool, configs))]
    if problems:
        raise InvalidInput(
            "Nodes would show another number of GPUs than their pools expect, and fail at registration:",
            problems=problems,
            remedy="",
        )
    for config in configs:
        for sentence in advice(config):
            task.warn(sentence)
    tolerations = _tolerations(params["tolerations"], pools)
    return PluginOptions(
        configs,
        params["image"],
        _selector(params["node_selector"]),
        tolerations,
        talos=_release(task),
        metrics=params["metrics_service"],
        power_limits=_power_limits(task, tolerations),
    )


def refuse_mps(task: Task, options: PluginOptions) -> None:
    """The stand-alone plugin would wait for ever for the daemon of MPS, and show no GPU. InvalidInput says so."""
    if keys := [config.key for config in options.configs if config.mps]:
        raise InvalidInput(
            f"MPS (sharing.mps of {', '.join(keys)}) needs NVIDIA's MPS control daemon on each node, which the stand-alone plugin does not "
            "bring: no GPU would be shown.",
            remedy=f"Set {task.called('profile')}=operator: the GPU Operator runs the daemon. Or share GPUs by timeSlicing.",
        )


def _default_config(task: Task, pools: t.Sequence[Pool]) -> PluginConfig:
    params = task.params
    if params["config"] is not None:
        if params["replicas"] is not None:
            raise InvalidInput(
                f"{task.called('replicas')} and {task.called('config')} exclude each other.",
                remedy="A configuration says sharing.timeSlicing.resources itself.",
            )
        return _read_config(task, "config", DEFAULT_KEY, params["config"])
    if params["replicas"] is not None:
        if params["replicas"] < 1:
            raise InvalidInput(f"{task.called('replicas')}: {params['replicas']} is too small; 1 is a whole GPU for each pod.")
        return of_replicas(params["replicas"])
    return _of_pools(task, [pool for pool in pools if DEVICE_PLUGIN_CONFIG_LABEL not in pool.labels])


def _of_pools(task: Task, pools: t.Sequence[Pool]) -> PluginConfig:
    """The one that makes their nodes show what these pools say."""
    kinds = sorted({(pool.slices, pool.slices_renamed, pool.mps) for pool in pools})
    if len(kinds) > 1:
        said = ", ".join(f"{pool.key}: {pool.slices}{' by mps' if pool.mps else ''}" for pool in pools)
        raise InvalidInput(
            f"The pools share their GPUs in different ways (timeSlicing.replicas of {said}), and one configuration serves all nodes.",
            remedy=f"Give a configuration for each other number with {task.called('configs')}, and the label {DEVICE_PLUGIN_CONFIG_LABEL} "
            "with its name in the pool's template.",
        )
    slices, renamed, mps = kinds[0] if kinds else (1, False, False)
    return of_replicas(slices, renamed=renamed, mps=mps)


def _further_configs(task: Task) -> list[PluginConfig]:
    given: dict[str, t.Any] = task.params["configs"]
    if problems := [fault for key in given if (fault := key_fault(key))]:
        raise InvalidInput(f"{task.called('configs')}:", problems=problems)
    return [_read_config(task, "configs", key, value) for key, value in sorted(given.items())]


def _read_config(task: Task, option: str, key: str, given: t.Any) -> PluginConfig:
    """A configuration given as a mapping, as the path of a file or, under ``configs``, as a number of replicas."""
    place = task.called(option) if key == DEFAULT_KEY else f"{task.called(option)}: {key}"
    if isinstance(given, int) and not isinstance(given, bool) and key != DEFAULT_KEY and given >= 1:
        return of_replicas(given, key)
    content = given if isinstance(given, dict) else _file(place, given)
    problems = faults(content)
    if problems:
        source = place if isinstance(given, dict) else f"{place} ({given})"
        raise InvalidInput(f"{source} is not a configuration of NVIDIA's device plugin:", problems=problems)
    return of_content(content, key)


def _file(place: str, path: t.Any) -> t.Any:
    if not isinstance(path, str):
        raise InvalidInput(f"{place}: a mapping or the path of a file is needed, not {path!r}.")
    try:
        return yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{place}: {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{place}: {path} is not YAML: {error}") from error


def _disagreement(pool: Pool, configs: t.Sequence[PluginConfig]) -> str:
    """What differs between what a pool says of its nodes and what their configuration makes them show; empty when nothing does."""
    by_key = {config.key: config for config in configs}
    config = by_key.get(pool.labels.get(DEVICE_PLUGIN_CONFIG_LABEL, DEFAULT_KEY), by_key[DEFAULT_KEY])
    name = "the default configuration" if config.key == DEFAULT_KEY else f"configuration {config.key}"
    if pool.mig and config.mig != "mixed":
        return f"{pool.key}: its mig needs flags.migStrategy: mixed, and {name} has {config.mig}."
    if pool.slices > 1 and config.replicas and pool.mps is not config.mps:
        ways = {True: "mps", False: "timeSlicing"}
        return f"{pool.key}: its {ways[pool.mps]} and {name} differ, which shares GPUs by {ways[config.mps]}."
    if config.mig != "none" or pool.gpu_wait == "none":
        return ""
    expected = (SHARED_GPU if pool.slices_renamed else NVIDIA_GPU, pool.slices)
    shown = config.advertised(1)
    if shown == expected:
        return ""
    way = "mps" if pool.mps else "timeSlicing"
    return f"{pool.key}: its {way} makes {expected[1]} {expected[0]} of each GPU, and {name} {shown[1]} {shown[0]}."


def _selector(given: t.Mapping[str, t.Any] | None) -> dict[str, str]:
    if given is None:
        return dict(SELECTED)
    return {str(key): "true" if value is True else "false" if value is False else str(value) for key, value in given.items()}


def _tolerations(given: t.Sequence[t.Mapping[str, t.Any]], pools: t.Iterable[Pool]) -> tuple[Toleration, ...]:
    """Those that every node of ours needs, those of the pools' own taints, and those that were given."""
    of_pools = {
        Toleration(taint.key, "Equal", taint.value, taint.effect)
        if taint.value
        else Toleration(taint.key, "Exists", "", taint.effect)
        for pool in pools
        for taint in (*pool.taints, *pool.startup_taints)
    }
    own = [Toleration(one.get("key") or "", one["operator"], one.get("value") or "", one.get("effect") or "") for one in given]
    order = sorted(of_pools, key=lambda one: (one.key, one.value, one.effect))
    kept = [one for one in order if one.key not in {usual.key for usual in TOLERATED}]
    return tuple(dict.fromkeys((*TOLERATED, *kept, *own)))


def _power_limits(task: Task, tolerations: t.Sequence[Toleration]) -> PowerLimits | None:
    given = task.params["power_limits"]
    if given is None:
        return None
    try:
        interval = parse_duration(given["interval"])
    except InvalidInput as error:
        raise InvalidInput(f"{task.called('power_limits')}: interval: {error.message}", remedy=error.remedy) from error
    limits = PowerLimits(
        given["watts"],
        interval or 0,
        given["persistence_mode"],
        given["image"],
        tolerations=[toleration_object(one) for one in tolerations],
    )
    for sentence in power_limit_warnings(limits):
        task.warn(sentence)
    return limits


def _release(task: Task) -> tuple[int, int] | None:
    given = task.params["talos_version"]
    release = minor(given) if given else None
    if given and release is None:
        raise InvalidInput(f"{task.called('talos_version')}: {given!r} is not a release of Talos, such as 1.13.9.")
    return release
