# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an unprivileged container is started with (lane service): its environment, and a start script that enters the tailnet first."""

from __future__ import annotations

import base64
import gzip
import shlex
import typing as t

from ..core.errors import InvalidInput
from ..model import Capability, Carrier, Claim, Container, MeshChoice, ServiceSpec

TAILSCALE_VERSION = "1.102.2"
LIMIT = 4000  # characters of the script; Vast.ai takes 4048 of scripts and arguments together
_VARIABLE_LIMIT, _SUM_LIMIT = 256, 32_768  # where variables are what the cloud carries payloads in: the same limits
_SCRIPT = r"""#!/bin/sh
# Enters the tailnet, then becomes the service. Written by the Ansible collection tgp.gpu.
d=${TGP_DIR:-/tmp/tgp} m=$(umask) s=prepare
step() { s=$1; echo "tgp-step $1"; }
die() { rm -f "$d/key"; echo "tgp-fail $s: $*"; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
get() {
  if has curl; then curl -fsSL --proto =https --max-time 120 -o "$2" "$1"
  elif has wget; then wget -q -T 60 -O "$2" "$1"
  else python3 -c 'import sys,urllib.request as u
open(sys.argv[2],"wb").write(u.urlopen(sys.argv[1],timeout=60).read())' "$1" "$2"; fi >"$d/out" 2>&1
}
fetch() {
  i=1
  until get "$1" "$2"; do
    [ $i -lt 4 ] || die "cannot fetch $1: $(said "$d/out")"
    i=$((i + 1)); sleep "${TGP_PAUSE:-5}"
  done
}
said() { tail -n 3 "$1" 2>&1 | tr '\n' ' '; }
step prepare
umask 077
k=$TS_AUTHKEY
unset TS_AUTHKEY
[ -n "$k" ] || die "TS_AUTHKEY is not set"
mkdir -p "$d" || die "cannot write $d"
step client
if has tailscale && has tailscaled; then t=tailscale
else
  has curl || has wget || has python3 || die "the image has neither curl nor wget nor python3"
  a=$(uname -m)
  if [ "$a" = x86_64 ]; then a=amd64; elif [ "$a" = aarch64 ]; then a=arm64; else die "no client for $a"; fi
  n=tailscale_@VERSION@_$a
  fetch "https://pkgs.tailscale.com/stable/$n.tgz.sha256" "$d/sum"
  fetch "https://pkgs.tailscale.com/stable/$n.tgz" "$d/tgz"
  want='' have=''
  read -r want _ <"$d/sum"
  sha256sum "$d/tgz" >"$d/out" 2>&1 && read -r have _ <"$d/out"
  if [ ${#want} != 64 ] || [ "$want" != "$have" ]; then die "the checksum of $n.tgz is '$have', published is '$want'"; fi
  tar -xzf "$d/tgz" -C "$d" >"$d/out" 2>&1 || die "cannot unpack $n.tgz: $(said "$d/out")"
  rm -f "$d/tgz"
  t=$d/$n/tailscale
fi
step daemon
"${t}d" --tun=userspace-networking --state=mem: --statedir="$d" --socket="$d/sock" \
  --socks5-server=127.0.0.1:1055 --outbound-http-proxy-listen=127.0.0.1:1055 >"$d/log" 2>&1 &
p=$! i=0
until [ -e "$d/sock" ]; do
  kill -0 $p 2>/dev/null || die "tailscaled ended: $(said "$d/log")"
  [ $i -lt 30 ] || die "tailscaled does not listen: $(said "$d/log")"
  i=$((i + 1)); sleep "${TGP_PAUSE:-1}"
done
step login
printf %s "$k" >"$d/key" || die "cannot write $d"
k=
"$t" --socket="$d/sock" up --timeout=120s --auth-key="file:$d/key" --hostname="$TS_HOSTNAME" @FLAGS@ \
  >"$d/out" 2>&1 || die "tailscale up: $(said "$d/out")"
rm -f "$d/key"
step service
has @PROGRAM@ || die "the image has no" @PROGRAM@
umask "$m"
exec @COMMAND@
"""
# The comment tells people, and whoever looks for it, what is inside.
_PACKED = """#!/bin/sh
# The start script of tgp.gpu, packed: tailscaled --tun=userspace-networking, tailscale up, then the service.
umask 077
printf %s '{packed}' | base64 -d | gzip -dc >/tmp/tgp-start && exec /bin/sh /tmp/tgp-start
echo "tgp-fail unpack: the image needs base64 and gzip"
exit 1
"""


def container_for(
    claim: Claim,
    service: ServiceSpec,
    mesh: MeshChoice,
    *,
    cluster_id: str,
    mesh_key: str,
    login_server: str = "",
    secrets: t.Mapping[str, str] | None = None,
    capability: Capability | None = None,
) -> Container:
    """The container of one machine. ``mesh_key`` lets it in once; ``secrets`` are the values of ``environment_from``.

    InvalidInput when it is longer than what clouds of containers take (``capability``: the limits of this one).
    """
    flags = _flags(mesh, login_server)
    environment = {
        **service.environment,
        **(secrets or {}),
        "TGP_CLUSTER": cluster_id,
        "TGP_NODE": claim.name,
        "TGP_POOL": claim.pool,
        "TGP_PORTS": ",".join(str(port) for port in dict.fromkeys((*service.ports, service.health_port))),
        "TGP_HEALTH_PATH": service.health_path,
        "TS_AUTHKEY": mesh_key,
        "TS_HOSTNAME": claim.name,
    }
    if service.mesh_client == "image":
        environment["TS_USERSPACE"] = "true"
        if flags:
            environment["TS_EXTRA_ARGS"] = " ".join(flags)
    if capability is not None and capability.carrier is Carrier.ENVIRONMENT:
        _check_variables(environment, claim.name, capability.cloud)
    return Container(service.image, start_script(service, flags), environment, service.ports)


def start_script(service: ServiceSpec, flags: t.Sequence[str]) -> str:
    """The text for ``/bin/sh``; empty when the image starts by itself. ``flags`` are those of ``tailscale up``."""
    words = [*service.command, *service.args]
    if not words:
        return ""
    command = shlex.join(words)
    if service.mesh_client == "image":
        script = f"#!/bin/sh\nexec {command}\n"
    else:
        parts = {"VERSION": TAILSCALE_VERSION, "FLAGS": shlex.join(flags), "PROGRAM": shlex.quote(words[0]), "COMMAND": command}
        script = _SCRIPT
        for name, text in parts.items():
            script = script.replace(f"@{name}@", text)
    if len(script) > LIMIT:
        script = _PACKED.format(packed=base64.b64encode(gzip.compress(script.encode(), 9, mtime=0)).decode())
    if len(script) > LIMIT:
        raise InvalidInput(
            f"The start script of a service has {len(script)} characters after packing, and clouds take {LIMIT}.",
            remedy="Make template.spec.service.command and args shorter: put a script into the image and name it.",
        )
    return script


def _flags(mesh: MeshChoice, login_server: str) -> tuple[str, ...]:
    flags = ["--accept-dns=false", f"--accept-routes={'true' if mesh.accept_routes else 'false'}"]
    if login_server:
        flags.append(f"--login-server={login_server}")
    if mesh.advertise_routes:
        flags.append(f"--advertise-routes={','.join(mesh.advertise_routes)}")
    return tuple(flags)


def _check_variables(environment: t.Mapping[str, str], name: str, cloud: str) -> None:
    long = sorted(key for key, value in environment.items() if max(len(key), len(value)) > _VARIABLE_LIMIT)
    total = sum(len(key) + len(value) for key, value in environment.items())
    if long or total > _SUM_LIMIT:
        excess = (
            f"{', '.join(long)} longer than {_VARIABLE_LIMIT} characters"
            if long
            else f"{total} characters together, {_SUM_LIMIT} are taken"
        )
        raise InvalidInput(
            f"{cloud} does not carry the environment of {name}: {excess}.",
            remedy="Make the values of template.spec.service.environment shorter, or put them into the image.",
        )
