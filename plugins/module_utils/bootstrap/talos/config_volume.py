# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Volumes from which Talos reads its configuration at boot: a nocloud seed, or a volume ``metal-iso``."""

from __future__ import annotations

import dataclasses
import io
import re
import shlex
import typing as t

from ...core.errors import InvalidInput, lazy
from ...talos.template import Document, parse, to_yaml
from .configurations import GivenConfig
from .kernel_arguments import METAL_ISO

if t.TYPE_CHECKING:
    import pycdlib
else:
    pycdlib = lazy("pycdlib")

NETWORK_FILE = "network-config"
_NETWORKS = (1, 2)  # versions of cloud-init's network-config
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


@dataclasses.dataclass(frozen=True, slots=True)
class Seed:
    """``files`` by name, in their order. ``label`` is the volume's: Talos finds it by that."""

    label: str
    files: t.Mapping[str, bytes] = dataclasses.field(repr=False)


def nocloud(name: str, config: GivenConfig, network: Document | None) -> Seed:
    """The seed of platform nocloud. ``network`` is cloud-init's network-config, None = DHCP."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is not a host name: small letters, digits, dots and dashes, 63 at most.")
    files = {
        "user-data": _user_data(name, config),
        "meta-data": to_yaml([{"instance-id": name, "local-hostname": name, "hostname": name}]).encode(),
    }
    if network is not None:
        if network.get("version") not in _NETWORKS:
            raise InvalidInput(
                f"network_config of {name} needs a version, 1 or 2.", remedy="Write it as cloud-init's network-config."
            )
        files[NETWORK_FILE] = to_yaml([network]).encode()
    return Seed("cidata", files)


def metal_iso(config: GivenConfig) -> Seed:
    """The volume that ``talos.config=metal-iso`` means."""
    return Seed(METAL_ISO, {"config.yaml": config.text.encode()})


def image(seed: Seed) -> bytes:
    """An ISO 9660 volume with the seed's files, with their long names in Rock Ridge and Joliet."""
    volume = pycdlib.PyCdlib()
    volume.new(interchange_level=3, vol_ident=seed.label, rock_ridge="1.09", joliet=3)
    for number, (name, content) in enumerate(seed.files.items()):
        volume.add_fp(io.BytesIO(content), len(content), f"/FILE{number}.;1", rr_name=name, joliet_path=f"/{name}")
    made = io.BytesIO()
    volume.write_fp(made)
    volume.close()
    return made.getvalue()


def same_image(present: bytes, seed: Seed) -> bool:
    """Whether a volume holds just this seed. Two volumes of the same content differ in their dates."""
    volume = pycdlib.PyCdlib()
    files: dict[str, bytes] = {}
    try:
        volume.open_fp(io.BytesIO(present))
        label = volume.pvd.volume_identifier.decode("ascii", "replace").strip()
        for entry in volume.list_children(rr_path="/"):
            if entry is not None and entry.is_file():
                name = entry.rock_ridge.name().decode()
                content = io.BytesIO()
                volume.get_file_from_iso_fp(content, rr_path=f"/{name}")
                files[name] = content.getvalue()
        volume.close()
    except (pycdlib.pycdlibexception.PyCdlibException, AttributeError, UnicodeDecodeError):
        return False  # no such volume, or one of another make
    return label == seed.label and files == dict(seed.files)


def command(seed: Seed, folder: str, target: str) -> str:
    """A shell command that makes the volume without root and without our help; its result is a secret, hence the umask."""
    words = ["xorriso", "-as", "genisoimage", "-quiet", "-output", target, "-volid", seed.label, "-joliet", "-rock", *seed.files]
    return f"(umask 077 && cd {shlex.quote(folder)} && {shlex.join(words)})"


def _user_data(name: str, config: GivenConfig) -> bytes:
    first = config.text.lstrip("\ufeff").partition("\n")[0].strip()
    if first.startswith(("#cloud-config", "#include", "#!")):
        raise InvalidInput(
            f"The configuration of {name} begins with {first.split()[0]!r}, by which Talos would take it for something else and not use it.",
            remedy="Take that line away.",
        )
    if not parse(config.text, f"the configuration of {name}"):
        raise InvalidInput(f"The configuration of {name} is empty.")
    return config.text.encode()
