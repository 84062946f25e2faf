# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""First half of the bootstrap program (script.py): what every step uses, and what makes a stock Ubuntu machine able to be a node."""

from __future__ import annotations

HOST = r"""#!/bin/bash
# Makes this Ubuntu machine a Kubernetes worker. Written by the Ansible collection tgp.gpu; settings: /etc/tgp/node.env.
set -Eeuo pipefail
umask 022
export LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a PATH=$PATH:/usr/sbin:/sbin
R=${TGP_ROOT:-}
ETC=$R/etc/tgp
LOG=$R/var/log/tgp-bootstrap.log
CONSOLE=${TGP_CONSOLE:-/dev/console}
PKI=$R/var/lib/kubelet/pki
KEYRINGS=$R/etc/apt/keyrings
STEP=start
WHY=

say() {
  { printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*" >>"$LOG"; } 2>/dev/null || true
  { printf '%s\n' "$*" >"$CONSOLE"; } 2>/dev/null || true
}
synced() { [[ $(timedatectl show --property=NTPSynchronized --value) == yes ]]; }
step() { STEP=$1; printf '%s\n' "$1" >"$R/run/tgp.step"; say "tgp-step $1"; }
die() {
  WHY=$*
  exit 1
}
finish() {
  local status=$?
  trap - EXIT ERR TERM INT
  ((status)) || return 0
  printf 'fail %s\n' "$STEP" >"$R/run/tgp.step"
  say "fail $STEP: ${WHY:-a setting is missing in $ETC/node.env (journalctl -u tgp-bootstrap)}"
  exit 1
}
trap 'WHY=${WHY:-line $LINENO ended with status $?}' ERR
trap 'WHY="stopped from outside, or its hour was over"; exit 1' TERM INT
trap finish EXIT
# said PATTERN: the last of the log's newest lines that has it, for people
said() { tail -n 60 "$LOG" | { grep -aE "$1" || true; } | tail -n 1 | sed -E 's/^[[:space:]]+//' | cut -c 1-300; }

# try SECONDS COMMAND...: run it every 2 s until it succeeds or the time is over
try() {
  local end=$((SECONDS + $1 * ${TGP_PATIENCE:-100} / 100))
  shift
  until "$@" >>"$LOG" 2>&1; do
    ((SECONDS < end)) || return 1
    sleep "${TGP_PAUSE:-2}"
  done
}
apt() {
  timeout --kill-after=60 1800 apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@" </dev/null >>"$LOG" 2>&1
}
fetch() { curl -fsSL --proto '=https' --retry 5 --retry-connrefused --max-time 300 -o "$2" "$1" 2>>"$LOG"; }
erase() { for f in "$@"; do [[ ! -f $f ]] || shred -fu "$f"; done; }

mkdir -p "$R/run" "$R/var/log" "$R/var/lib/tgp" "$KEYRINGS" "$R/etc/apt/sources.list.d" "$R/etc/modules-load.d"
[[ -e $LOG ]] || install -m 600 /dev/null "$LOG"
# shellcheck source=/dev/null
. "$ETC/node.env"
# shellcheck source=/dev/null
. "$R/etc/os-release"

if [[ -e $R/var/lib/tgp/done ]] && systemctl is-active --quiet kubelet; then
  say "this machine is a node already"
  exit 0
fi

step preflight
[[ $(id -u) == 0 ]] || die "not root"
[[ $ID == ubuntu ]] || die "this is $ID, not Ubuntu"
case $VERSION_ID in 22.04 | 24.04 | 26.04) ;; *) die "Ubuntu $VERSION_ID is not supported: 22.04, 24.04 or 26.04" ;; esac
! systemd-detect-virt --quiet --container || die "a container cannot be a Kubernetes node"
[[ -e $R/sys/fs/cgroup/cgroup.controllers ]] || die "cgroup v2 is missing"
free=$(df --output=avail -BG "${R:-/}" | tr -dc '0-9')
((free >= ${MIN_DISK_GIB:-20})) || die "$free GiB free on the root disk, ${MIN_DISK_GIB:-20} wanted"
try 90 synced || say "the clock is not synchronised; a wrong one shows in step api"
hostnamectl set-hostname "$NODE_NAME"

step apt-lock
timeout 300 systemctl stop apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service unattended-upgrades.service \
  >>"$LOG" 2>&1 || true
# what an interrupted installation left half done
timeout --kill-after=60 900 dpkg --configure -a --force-confold </dev/null >>"$LOG" 2>&1 || say "dpkg --configure -a failed: see $LOG"

step kernel
swapoff -a
[[ ! -f $R/etc/fstab ]] || sed -i -E '/^[^#].*[[:space:]]swap[[:space:]]/s/^/#/' "$R/etc/fstab"
read -r -a modules <<<"overlay br_netfilter nf_conntrack vxlan $KERNEL_MODULES"
printf '%s\n' "${modules[@]}" >"$R/etc/modules-load.d/tgp.conf"
for module in "${modules[@]}"; do modprobe "$module" || die "the kernel has no module $module"; done
sysctl -q --system >>"$LOG" 2>&1
[[ $(sysctl -n net.ipv4.ip_forward) == 1 ]] || die "net.ipv4.ip_forward stays off"

wanted="$KUBELET_VERSION $MESH_BACKEND $NVIDIA"
if [[ $(cat "$R/var/lib/tgp/packages" 2>/dev/null || true) != "$wanted" ]]; then
  step repositories
  # gpg with an empty home: nothing of the image's decides what it says
  pgp() { timeout 60 gpg --homedir "$R/run/tgp-gpg" --no-options --no-autostart --batch --no-tty --quiet "$@" </dev/null 2>>"$LOG"; }
  # primaries FILE: the fingerprints of all primary keys in it, sorted, halves that should be secret among them (apt would take these, too);
  # a failure unless gpg reads it to its end, because apt may find a key in what gpg skips
  primaries() {
    local found
    found=$(pgp --show-keys --with-colons "$1") || return 1
    awk -F: '$1 == "pub" || $1 == "sec" { next_is = 1 } $1 == "fpr" && next_is { print $10; next_is = 0 }' <<<"$found" | sort | xargs
  }
  # repo NAME KEY-URL LINE: a repository that only its own key may sign. What came is compared with KEY_NAME of node.env in the very bytes
  # that apt is then given. apt refuses to read one repository with two keys, so what the image says of it is set aside.
  repo() {
    local file place expected came key=$KEYRINGS/tgp-$1.gpg pin=KEY_${1^^}
    expected=${!pin}
    expected=$(tr ' ' '\n' <<<"${expected^^}" | sort | xargs)
    fetch "$2" "$key.came" || die "the key of $1 cannot be had from $2"
    install -d -m 700 "$R/run/tgp-gpg"
    if ! pgp --yes --output "$key.new" --dearmor "$key.came" || ! came=$(primaries "$key.new"); then
      came="no key that gpg can read (it begins: $(head -c 40 "$key.came" | tr -dc ' -~'))"
    fi
    rm -rf "$key.came" "$R/run/tgp-gpg"
    [[ -n $expected && $came == "$expected" ]] || {
      rm -f "$key.new"
      die "the signing key of $1 is not the pinned one: expected $expected, came $came." \
        "Take a newer tgp.gpu, or set $pin if its owner says that it is new (docs/how_to/kubelet_lane.md)"
    }
    mv -f "$key.new" "$key"
    place=$(sed -nE 's,.*https://([^/ ]+/[^/ ]*).*,\1,p' <<<"$3")
    for file in "$R"/etc/apt/sources.list.d/*.list "$R"/etc/apt/sources.list.d/*.sources; do
      [[ ! -f $file || ${file##*/} == tgp-* ]] || ! grep -qF "$place" "$file" || mv "$file" "$file.disabled"
    done
    printf 'deb [signed-by=%s] %s\n' "$key" "$3" >"$R/etc/apt/sources.list.d/tgp-$1.list"
  }
  try 120 apt update || die "apt-get update failed: $(said '^(E|Err)')"
  apt install ca-certificates curl gnupg || die "the tools for repositories (curl, gpg) cannot be installed: $(said '^E')"
  type -P gpg >/dev/null || die "gpg is missing although its package gnupg was installed: no key of a repository can be checked"
  minor=${KUBELET_VERSION%.*}
  repo kubernetes "https://pkgs.k8s.io/core:/stable:/v$minor/deb/Release.key" "https://pkgs.k8s.io/core:/stable:/v$minor/deb/ /"
  repo docker https://download.docker.com/linux/ubuntu/gpg \
    "https://download.docker.com/linux/ubuntu $VERSION_CODENAME stable"
  [[ $MESH_BACKEND != tailscale ]] ||
    repo tailscale "https://pkgs.tailscale.com/stable/ubuntu/$VERSION_CODENAME.noarmor.gpg" \
      "https://pkgs.tailscale.com/stable/ubuntu $VERSION_CODENAME main"
  # shellcheck disable=SC2016 # apt fills in $(ARCH)
  ((!NVIDIA)) ||
    repo nvidia https://nvidia.github.io/libnvidia-container/gpgkey \
      'https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /'
  # one by one and strictly: apt only warns of an index that it cannot fetch
  for file in "$R"/etc/apt/sources.list.d/tgp-*.list; do
    try 120 apt -o "Dir::Etc::sourcelist=$file" -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any update ||
      die "apt-get update failed with the repositories added: $(said '^(E: [^S]|Err)')"
  done
  index=$(apt-cache madison kubelet 2>>"$LOG") || die "apt-cache failed: $(said '^E')"
  [[ $index == *" $KUBELET_VERSION-"* ]] || die "the Kubernetes repository has no kubelet $KUBELET_VERSION"

  step packages
  hold=(kubelet containerd.io kubernetes-cni)
  set -- "kubelet=$KUBELET_VERSION-*" 'containerd.io=2.*' 'kubernetes-cni=1.*' iptables nftables conntrack
  [[ $MESH_BACKEND != tailscale ]] || { set -- "$@" 'tailscale=1.*'; hold+=(tailscale); }
  [[ $MESH_BACKEND != wireguard ]] || set -- "$@" wireguard-tools
  ((!NVIDIA)) || { set -- "$@" 'nvidia-container-toolkit=1.*'; hold+=(nvidia-container-toolkit); }
  apt-mark unhold "${hold[@]}" >>"$LOG" 2>&1 || true
  apt install --allow-downgrades --allow-change-held-packages -o Dpkg::Options::=--force-confold "$@" ||
    die "the packages cannot be installed: $(said '^(E:|dpkg: error)')"
  apt-mark hold "${hold[@]}" >>"$LOG"
  [[ $(kubelet --version) == *"v$KUBELET_VERSION" ]] || die "the kubelet is not $KUBELET_VERSION but $(kubelet --version)"
  # what cannot be asked for by its exact version is compared with the versions that this program was written for
  fits() {
    local found
    found=$(dpkg-query -W -f '${Version}' "$1" 2>>"$LOG" || true)
    [[ ${found#*:} =~ ^$2 ]] || die "$1 ${found:-(none)} was installed, and this program is for $3"
    say "installed $1 $found"
  }
  fits kubelet "${KUBELET_VERSION//./\\.}-" "exactly $KUBELET_VERSION"
  fits containerd.io '2\.' '2.0 or newer, below 3'
  fits kubernetes-cni '1\.([2-9]|[1-9][0-9])\.' '1.2 or newer, below 2'
  [[ $MESH_BACKEND != tailscale ]] || fits tailscale '1\.([6-9][0-9]|[1-9][0-9][0-9])\.' '1.60 or newer, below 2'
  ((!NVIDIA)) || fits nvidia-container-toolkit '1\.(1[7-9]|[2-9][0-9])\.' '1.17 or newer, below 2'
  major=$(containerd --version | sed -nE 's/.*[[:space:]]v?([0-9]+)\.[0-9]+.*/\1/p')
  ((${major:-0} >= 2)) || die "containerd 2 or newer is needed, this is $(containerd --version)"
  printf '%s\n' "$wanted" >"$R/var/lib/tgp/packages"
fi

if ((NVIDIA)); then
  step driver
  # NVIDIA's devices on the bus as "class id": class 03 is a GPU, 0680 a switch between GPUs
  bus() {
    local at
    for at in "$R"/sys/bus/pci/devices/*; do
      [[ ! -e $at/vendor || $(<"$at/vendor") != 0x10de ]] || printf '%s %s\n' "$(<"$at/class")" "$(<"$at/device")"
    done
  }
  smi() { timeout 60 nvidia-smi -L; }
  cards=$(bus | grep '^0x03' || true)
  switches=$(bus | grep '^0x0680' || true)
  [[ -n $cards ]] || die "there is no NVIDIA GPU on the PCI bus: the cloud gave another machine than ordered"
  if ! smi >>"$LOG" 2>&1; then
    # the open modules know Turing and what came after it (ids from 1e00 on), the closed ones what came before
    flavor=-open
    while read -r _ id; do ((id >= 0x1e00)) || flavor=; done <<<"$cards"
    set -- "nvidia-headless-no-dkms-$DRIVER_BRANCH-server$flavor" "nvidia-utils-$DRIVER_BRANCH-server" \
      "linux-modules-nvidia-$DRIVER_BRANCH-server$flavor-$(uname -r)"
    [[ -z $switches ]] || set -- "$@" "nvidia-fabricmanager-$DRIVER_BRANCH"
    apt install "$@" || die "the NVIDIA driver $DRIVER_BRANCH cannot be installed: $(said '^(E:|dpkg: error)')"
    modprobe -r nouveau >>"$LOG" 2>&1 || true
    for module in nvidia nvidia_uvm; do
      timeout 120 modprobe "$module" >>"$LOG" 2>&1 ||
        die "the NVIDIA driver $DRIVER_BRANCH does not load ($module): does nouveau hold the GPU?"
    done
  fi
  try 120 smi || die "nvidia-smi sees no GPU: $(said 'NVIDIA|No devices|[Ff]ailed')"
  gpus=$(smi | grep -c '^GPU ' || true)
  ((gpus == GPU_COUNT)) || die "$gpus GPUs found, $GPU_COUNT ordered"
  [[ -z $switches ]] || systemctl enable --now nvidia-fabricmanager >>"$LOG" 2>&1 ||
    say "the GPUs are joined by switches and no fabric manager runs here: unless the host runs it, CUDA fails with error 802"
fi

"""
