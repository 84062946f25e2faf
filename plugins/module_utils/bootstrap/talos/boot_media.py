# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What own machines boot from and find their configuration by: what the module ``talos_boot_media`` does."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import re
import typing as t
from urllib.parse import urlsplit

from ...core.errors import BadShape, InvalidInput
from ...core.http import Api
from ...core.rate_limit import RetryPolicy
from ...core.redact import register
from ...core.task import Task
from ...talos.images.factory import PUBLIC, Images, images
from ...talos.releases.tables import OLDEST, minor
from ...talos.spec import DEFAULT_TALOS, plain
from .config_volume import NETWORK_FILE, Seed, command, image, metal_iso, nocloud, same_image
from .configurations import GivenConfig, given_config
from .kernel_arguments import METAL_ISO, arguments, config_argument, joined, plain_http

FORMS = ("ipxe", "nocloud", "metal_iso")
_PLATFORM = {"ipxe": "metal", "nocloud": "nocloud", "metal_iso": "metal"}
_GENERAL = "talos"  # name of what is the same for all machines
Params = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Medium:
    """One file to write, and whose it is ("" = everybody's)."""

    form: str
    node: str
    file: Private


def prepare(task: Task) -> dict[str, t.Any]:
    """One call of the module. Everything is checked before the first file is written; InvalidInput lists all faults."""
    params = task.params
    version = plain(params["talos_version"] or DEFAULT_TALOS)
    forms = list(dict.fromkeys(params["forms"]))
    references, common = _checked(params, version, forms)
    configs = _configs(params, version, forms)
    media: list[_Medium] = []
    commands: list[str] = []
    gone: list[Private] = []
    if "ipxe" in forms:
        media += _scripts(task, references, common)
    for form in ("nocloud", "metal_iso"):
        if form in forms:
            made, to_run, old = _seeds(params, form, configs)
            media += made
            commands += to_run
            gone += old
    urls = [params["config_url"], *(node["config_url"] for node in params["nodes"])]
    for url in dict.fromkeys(url for url in urls if url and plain_http(url)):
        task.warn(
            f"The configuration, and with it the cluster's secrets, crosses the network unprotected: {url.partition('?')[0]}."
        )
    return _result(task, media, gone, references, common, commands)


def _checked(params: Params, version: str, forms: t.Sequence[str]) -> tuple[Images, list[str]]:
    """References to the image, and the kernel arguments that are the same for all machines."""
    common, refused = _common_arguments(params, forms)
    problems = [*_image_faults(params, version), *_form_faults(params, forms), *refused]
    if "metal_iso" in forms and (params["config_url"] or any(node["config_url"] for node in params["nodes"])):
        problems.append("config_url and form metal_iso exclude each other: both say where the configuration is.")
    for node in params["nodes"]:
        problems += _node_faults(node, forms)
    names = [node["name"] for node in params["nodes"]]
    problems += [f"{name} is listed twice." for name in sorted({name for name in names if names.count(name) > 1})]
    if problems:
        raise InvalidInput("Nothing was written.", problems=problems)
    if "metal_iso" in forms:
        common.insert(0, f"talos.config={METAL_ISO}")
    url = params["image_factory_url"] or PUBLIC
    chosen = {"platform": params["platform"], "arch": params["arch"], "secureboot": params["secureboot"]}
    return images(params["schematic_id"], version, url=url, **chosen), common


def _image_faults(params: Params, version: str) -> t.Iterator[str]:
    """What is wrong with release and schematic, which name the image."""
    numbers = minor(version)
    if numbers is None or numbers < OLDEST or not re.fullmatch(r"\d+\.\d+\.\d+(-[a-z]+\.\d+)?", version):
        yield f"The Talos version {version!r} must be a release like 1.13.9, {OLDEST[0]}.{OLDEST[1]} or newer."
    if not re.fullmatch(r"[0-9a-f]{64}", params["schematic_id"]):
        yield "The id of the schematic must be 64 hex digits; tgp.gpu.talos_schematic tells it."


def _form_faults(params: Params, forms: t.Sequence[str]) -> t.Iterator[str]:
    """What the forms lack, and what does not go with their platform."""
    platform = params["platform"]
    if forms and not params["dest"]:
        yield "dest is missing: a folder for the files."
    if platform != "metal" and params["config_url"]:
        yield f"config_url is read on platform metal only, and platform is {platform}: give the machine a seed."
    for form in forms:
        if _PLATFORM[form] != platform:
            yield f"Form {form} is for platform {_PLATFORM[form]}, and platform is {platform}."


def _common_arguments(params: Params, forms: t.Sequence[str]) -> tuple[list[str], list[str]]:
    """The kernel arguments that the options make for all machines, and what is wrong with those options."""
    common: list[str] = []
    problems: list[str] = []
    try:
        if params["config_url"]:
            common.append(config_argument(params["config_url"], ipxe="ipxe" in forms))
    except InvalidInput as error:
        problems += error.problems
    try:
        common += arguments(params["consoles"], params["kernel_args"])
    except InvalidInput as error:
        problems += error.problems
    return common, problems


def _node_faults(node: Params, forms: t.Sequence[str]) -> t.Iterator[str]:
    """What is wrong with one entry of ``nodes``, its configuration aside."""
    name = node["name"]
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,61}[a-z0-9]|[a-z0-9]", name) or name == _GENERAL:
        yield f"nodes: {name!r} cannot be used as a name for files: small letters, digits, dots and dashes."
    if node["config_url"]:
        try:
            config_argument(node["config_url"], ipxe=True)
        except InvalidInput as error:
            yield from (f"{name}: {problem}" for problem in error.problems)
        if "ipxe" not in forms:
            yield f"{name}: config_url of one node needs form ipxe, as an image is the same for all."
    if node["network_config"] is not None and "nocloud" not in forms:
        yield f"{name}: network_config needs form nocloud."


def _configs(params: Params, version: str, forms: t.Sequence[str]) -> dict[str, GivenConfig]:
    """The configurations by node, where a form carries them."""
    carries = [form for form in forms if form != "ipxe"]
    problems: list[str] = []
    configs: dict[str, GivenConfig] = {}
    if carries and not params["nodes"]:
        problems.append(f"Form {carries[0]} holds a configuration, and nodes lists none.")
    for node in params["nodes"]:
        name = node["name"]
        if not carries:
            if node["config"] or node["config_file"]:
                problems.append(
                    f"{name}: a script for network boot carries no configuration; its address in config_url must answer with it."
                )
            continue
        try:
            configs[name] = given_config(node, name, version)
            mode = "metal" if params["platform"] == "metal" else "cloud"
            problems += [f"{name}: {problem}" for problem in configs[name].checked(mode, version)]
        except InvalidInput as error:
            problems += [f"{name}: {problem}" for problem in error.problems or (str(error),)]
    if problems:
        raise InvalidInput("Nothing was written.", problems=problems)
    return configs


def _scripts(task: Task, references: Images, common: t.Sequence[str]) -> t.Iterator[_Medium]:
    """One script for everybody, unless each machine has an address of its own, and one for each that has."""
    params = task.params
    published = functools.cache(lambda: published_script(task, references))
    own = {node["name"]: node["config_url"] for node in params["nodes"] if node["config_url"]}
    if params["config_url"] or len(own) < len(params["nodes"]) or not own:
        text = _script(params, references, published, common)
        yield _Medium("ipxe", "", Private(_path(params, f"{_GENERAL}.ipxe"), text.encode(), secret=False))
    for name, url in own.items():
        register(url)  # the ticket in it is good until it was used
        others = [argument for argument in common if not argument.startswith("talos.config=")]
        text = _script(params, references, published, [config_argument(url, ipxe=True), *others])
        yield _Medium("ipxe", name, Private(_path(params, f"{name}.ipxe"), text.encode()))


def _script(params: Params, references: Images, published: t.Callable[[], str], more: t.Sequence[str]) -> str:
    if params["secureboot"]:
        refuse_secure_boot(more)
    return own_script(published(), more) if more else chained(references)


def _seeds(params: Params, form: str, configs: t.Mapping[str, GivenConfig]) -> tuple[list[_Medium], list[str], list[Private]]:
    """Files to write, commands that make volumes of them, and files that must not be there any more."""
    media: list[_Medium] = []
    commands: list[str] = []
    gone: list[Private] = []
    for node in params["nodes"]:
        name = node["name"]
        seed = nocloud(name, configs[name], node["network_config"]) if form == "nocloud" else metal_iso(configs[name])
        target = _path(params, f"{name}.{seed.label}.iso")
        if params["image"]:
            file = Private(target, image(seed), same=functools.partial(_same, seed))
            media.append(_Medium(form, name, file))
            continue
        folder = _path(params, os.path.join(name, form))
        media += [_Medium(form, name, Private(os.path.join(folder, file), content)) for file, content in seed.files.items()]
        if form == "nocloud" and NETWORK_FILE not in seed.files:
            gone.append(Private(os.path.join(folder, NETWORK_FILE), None))  # of an earlier call: it would be read
        commands.append(command(seed, folder, target))
    return media, commands, gone


def _same(seed: Seed, present: bytes) -> bool:
    return same_image(present, seed)


def _path(params: Params, name: str) -> str:
    return os.path.join(os.path.abspath(os.path.expanduser(params["dest"])), name)


def _result(
    task: Task,
    media: t.Sequence[_Medium],
    gone: t.Sequence[Private],
    references: Images,
    common: t.Sequence[str],
    commands: t.Sequence[str],
) -> dict[str, t.Any]:
    written = write([medium.file for medium in media], task.check_mode)
    removed = write(gone, task.check_mode)
    files = [
        {
            "form": medium.form,
            "node": medium.node,
            "path": file.path,
            "bytes": file.bytes,
            "sha256": file.sha256,
            "changed": file.changed,
        }
        for medium, file in zip(media, written, strict=True)
    ]
    result: dict[str, t.Any] = {
        "changed": any(file.changed for file in (*written, *removed)),
        "files": files,
        "images": dataclasses.asdict(references),
        "kernel_args": list(common),
        "commands": list(commands),
    }
    if task.diff_mode:
        result["diff"] = [dict(file.diff) for file in (*written, *removed) if file.diff]
    return result


# ---- atomic writes of private files, and what of them may be shown


@dataclasses.dataclass(frozen=True, slots=True)
class Private:
    """A file to be, or not to be (``content`` None). ``secret``: its content is never shown, not even as a difference. ``same`` decides
    whether what lies there is as good, where equal bytes would ask too much."""

    path: str
    content: bytes | None = dataclasses.field(repr=False)
    secret: bool = True
    same: t.Callable[[bytes], bool] | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """``changed``: it was, or would be, written or taken away. ``diff`` as Ansible takes it, without secrets; empty when nothing changes."""

    path: str
    bytes: int
    sha256: str
    changed: bool
    diff: t.Mapping[str, str]


def write(files: t.Sequence[Private], check_mode: bool) -> list[Written]:
    """Put the files there with mode 0600, in folders of mode 0700 where there are none. InvalidInput when that fails."""
    return [_one(file, check_mode) for file in files]


def _one(file: Private, check_mode: bool) -> Written:
    before, private = _present(file.path)
    content = file.content
    if before is not None and content is not None and file.same is not None and file.same(before):
        content = before
    changed = content != before or not private and before is not None
    if changed and not check_mode:
        _put(file.path, content)
    diff = {}
    if changed:
        texts = {"before": _shown(file, before), "after": _shown(file, content)}
        diff = {"before_header": file.path, "after_header": f"{file.path} (0600)", **texts}
    data = content or b""
    return Written(file.path, len(data), hashlib.sha256(data).hexdigest(), changed, diff)


def _present(path: str) -> tuple[bytes | None, bool]:
    """What lies there, and whether its owner alone may read it."""
    try:
        with open(path, "rb") as file:
            return file.read(), not os.fstat(file.fileno()).st_mode & 0o077
    except FileNotFoundError:
        return None, False
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None


def _put(path: str, content: bytes | None) -> None:
    temporary = f"{path}.{os.getpid()}.new"
    try:
        if content is None:
            os.unlink(path)
            return
        _folder(os.path.dirname(path))
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None


def _folder(path: str) -> None:
    """The folder and all above it; the mode that os.makedirs takes counts for the last one only."""
    if path and not os.path.isdir(path):
        _folder(os.path.dirname(path))
        os.mkdir(path, 0o700)


def _shown(file: Private, content: bytes | None) -> str:
    if content is None:
        return ""
    if file.secret:
        return f"a secret of {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}\n"
    return content.decode("utf-8", "replace")


# ---- network boot: an iPXE script that starts Talos from the Image Factory and tells it where its configuration is

_KERNEL = re.compile(r"^kernel (\S+) (.+)$", re.MULTILINE)


def chained(images: Images) -> str:
    """The factory's own script, fetched at each boot: nothing is added to what stands in the schematic."""
    return f"#!ipxe\nchain --replace --autofree {images.pxe}\n"


def own_script(published: str, more: t.Sequence[str]) -> str:
    """The factory's script ``published`` with our arguments added to its command line (which holds those of the schematic, too)."""
    lines = _KERNEL.findall(published)
    if not published.startswith("#!ipxe") or len(lines) != 1 or "talos.platform=" not in lines[0][1]:
        raise BadShape(
            "The Image Factory's iPXE script has no command line that could be added to.",
            remedy="Scripts for Secure Boot have none: put the arguments into the schematic and leave them out here.",
            service="image factory",
        )
    kernel, line = lines[0]
    # a function, so that nothing in the line is read as a reference to the pattern
    return _KERNEL.sub(lambda _found: f"kernel {kernel} {joined(line, more)}", published)


def published_script(task: Task, images: Images) -> str:
    """The factory's script. Raises an ApiError; asking makes no image."""
    parts = urlsplit(images.pxe)
    root = f"{parts.scheme}://{parts.netloc}"
    api = Api("image factory", root, transport=task.transport(root), retry=RetryPolicy(tries=3), clock=task.clock)
    try:
        return api.call("GET", parts.path).text
    finally:
        api.close()


def refuse_secure_boot(more: t.Sequence[str]) -> None:
    """A signed image carries its command line inside."""
    if more:
        raise InvalidInput(
            "With Secure Boot nothing can be added to the command line, which is part of the signed image.",
            problems=[f"{argument.partition('=')[0]} would be added." for argument in more],
            remedy="Put the arguments into the schematic (kernel_args of tgp.gpu.talos_schematic).",
        )
