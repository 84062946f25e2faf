# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that makes a stock Ubuntu machine a worker of a Talos cluster. It reads /etc/tgp/node.env; nothing is filled into it.

Each step leaves its name in /run/tgp.step and a line "tgp-step NAME" on the console and in /var/log/tgp-bootstrap.log; the first
failure leaves "fail NAME" and ends it. Every wait has an end. It may be run again at any point, also after a reboot.
For rehearsals TGP_ROOT moves every file below another folder, TGP_PATIENCE is the percentage of every wait, TGP_PAUSE the seconds
between two tries, TGP_CONSOLE another console.
"""

from __future__ import annotations

BOOTSTRAP = r"""#!/bin/bash
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

say() {
  printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*" >>"$LOG"
  { printf '%s\n' "$*" >"$CONSOLE"; } 2>/dev/null || true
}
synced() { [[ $(timedatectl show --property=NTPSynchronized --value) == yes ]]; }
step() { STEP=$1; printf '%s\n' "$1" >"$R/run/tgp.step"; say "tgp-step $1"; }
die() {
  trap - ERR
  printf 'fail %s\n' "$STEP" >"$R/run/tgp.step"
  say "fail $STEP: $*"
  exit 1
}
trap 'die "line $LINENO ended with status $?"' ERR

# try SECONDS COMMAND...: run it every 2 s until it succeeds or the time is over
try() {
  local end=$((SECONDS + $1 * ${TGP_PATIENCE:-100} / 100))
  shift
  until "$@" >>"$LOG" 2>&1; do
    ((SECONDS < end)) || return 1
    sleep "${TGP_PAUSE:-2}"
  done
}
apt() { apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@" >>"$LOG" 2>&1; }
fetch() { curl -fsSL --proto '=https' --retry 5 --retry-connrefused --max-time 300 -o "$2" "$1" 2>>"$LOG"; }
erase() { for f in "$@"; do [[ ! -f $f ]] || shred -fu "$f"; done; }

mkdir -p "$R/run" "$R/var/log" "$R/var/lib/tgp" "$KEYRINGS" "$R/etc/apt/sources.list.d" "$R/etc/modules-load.d"
[[ -e $LOG ]] || install -m 600 /dev/null "$LOG"
# shellcheck source=/dev/null
. "$ETC/node.env"
# shellcheck source=/dev/null
. "$R/etc/os-release"

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
systemctl stop apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service unattended-upgrades.service \
  >>"$LOG" 2>&1 || true

step kernel
swapoff -a
[[ ! -f $R/etc/fstab ]] || sed -i -E '/^[^#].*[[:space:]]swap[[:space:]]/s/^/#/' "$R/etc/fstab"
read -r -a modules <<<"overlay br_netfilter nf_conntrack vxlan $KERNEL_MODULES"
printf '%s\n' "${modules[@]}" >"$R/etc/modules-load.d/tgp.conf"
for module in "${modules[@]}"; do modprobe "$module" || die "the kernel has no module $module"; done
sysctl -q --system >>"$LOG" 2>&1
[[ $(sysctl -n net.ipv4.ip_forward) == 1 ]] || die "net.ipv4.ip_forward stays off"

if [[ ! -e $R/var/lib/tgp/packages ]]; then
  step repositories
  # repo NAME.EXT KEY-URL LINE: a repository that only its own key may sign; the key comes over verified TLS
  repo() {
    fetch "$2" "$KEYRINGS/tgp-$1" || die "the key of ${1%.*} cannot be had from $2"
    printf 'deb [signed-by=%s] %s\n' "$KEYRINGS/tgp-$1" "$3" >"$R/etc/apt/sources.list.d/tgp-${1%.*}.list"
  }
  apt update || die "apt-get update failed"
  apt install ca-certificates curl gnupg || die "the tools for repositories cannot be installed"
  minor=${KUBELET_VERSION%.*}
  repo kubernetes.asc "https://pkgs.k8s.io/core:/stable:/v$minor/deb/Release.key" "https://pkgs.k8s.io/core:/stable:/v$minor/deb/ /"
  repo docker.asc https://download.docker.com/linux/ubuntu/gpg \
    "https://download.docker.com/linux/ubuntu $VERSION_CODENAME stable"
  [[ $MESH_BACKEND != tailscale ]] ||
    repo tailscale.gpg "https://pkgs.tailscale.com/stable/ubuntu/$VERSION_CODENAME.noarmor.gpg" \
      "https://pkgs.tailscale.com/stable/ubuntu $VERSION_CODENAME main"
  # shellcheck disable=SC2016 # apt fills in $(ARCH)
  ((!NVIDIA)) ||
    repo nvidia.asc https://nvidia.github.io/libnvidia-container/gpgkey \
      'https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /'
  apt update || die "apt-get update failed with the repositories added"
  apt-cache madison kubelet | grep -qF " $KUBELET_VERSION-" || die "the Kubernetes repository has no kubelet $KUBELET_VERSION"

  step packages
  apt-mark unhold kubelet containerd.io >>"$LOG" 2>&1 || true
  set -- "kubelet=$KUBELET_VERSION-*" 'containerd.io=2.*' kubernetes-cni iptables nftables conntrack
  [[ $MESH_BACKEND != tailscale ]] || set -- "$@" tailscale
  ((!NVIDIA)) || set -- "$@" nvidia-container-toolkit
  apt install --allow-downgrades --allow-change-held-packages -o Dpkg::Options::=--force-confold "$@" || die "packages: see $LOG"
  apt-mark hold kubelet containerd.io >>"$LOG"
  kubelet --version | grep -qF "v$KUBELET_VERSION" || die "the kubelet is not $KUBELET_VERSION"
  touch "$R/var/lib/tgp/packages"
fi

if ((NVIDIA)); then
  step driver
  if ! nvidia-smi -L >>"$LOG" 2>&1; then
    apt install "nvidia-headless-no-dkms-$DRIVER_BRANCH-server-open" "nvidia-utils-$DRIVER_BRANCH-server" \
      "linux-modules-nvidia-$DRIVER_BRANCH-server-open-$(uname -r)" || die "the NVIDIA driver $DRIVER_BRANCH cannot be installed"
    modprobe nvidia || die "the NVIDIA driver does not load"
    modprobe nvidia_uvm || die "the NVIDIA driver does not load (nvidia_uvm)"
  fi
  try 120 nvidia-smi -L || die "nvidia-smi sees no GPU"
  gpus=$(nvidia-smi -L | grep -c '^GPU ')
  ((gpus == GPU_COUNT)) || die "$gpus GPUs found, $GPU_COUNT ordered"
fi

step mesh
if [[ $MESH_BACKEND == tailscale ]]; then
  systemctl enable --now tailscaled >>"$LOG" 2>&1
  if [[ -f $ETC/authkey ]]; then
    # one use of a one-use key: after a lost answer the state tells whether the login took place
    read -r -a extra <<<"$MESH_EXTRA_ARGS"
    tailscale ip -4 >/dev/null 2>&1 ||
      tailscale up --authkey="file:$ETC/authkey" --hostname="$MESH_HOSTNAME" --accept-dns=false --timeout=120s \
        ${MESH_LOGIN_SERVER:+"--login-server=$MESH_LOGIN_SERVER"} "${extra[@]}" >>"$LOG" 2>&1 ||
      die "tailscale up failed: key used, expired, or its tag not owned"
  fi
  try 60 tailscale ip -4 || die "no address in the tailnet"
  NODE_IP=$(tailscale ip -4 | head -n 1)
  erase "$ETC/authkey"
else
  NODE_IP=$(ip -4 route get "${API_SERVER%:*}" 2>/dev/null | sed -nE 's/.* src ([0-9.]+).*/\1/p' | head -n 1)
fi

step api
# 127.0.0.1:7445 is where kube-proxy and the CNI of a Talos cluster look for the API server
cat >"$R/etc/systemd/system/tgp-api.socket" <<EOF
[Unit]
Description=Kubernetes API of the cluster, on this node
[Socket]
ListenStream=127.0.0.1:7445
[Install]
WantedBy=sockets.target
EOF
cat >"$R/etc/systemd/system/tgp-api.service" <<EOF
[Unit]
Description=Forward the Kubernetes API of the cluster
Requires=tgp-api.socket
After=tgp-api.socket tailscaled.service
[Service]
ExecStart=/lib/systemd/systemd-socket-proxyd $API_SERVER
DynamicUser=yes
EOF
systemctl daemon-reload
systemctl enable --now tgp-api.socket >>"$LOG" 2>&1
# 200 (token known) or 401 (Talos answers strangers so) both prove route, CA and name; the token goes by file, not by argument
header=()
if [[ -f $ETC/bootstrap-kubeconfig ]]; then
  install -m 600 /dev/null "$ETC/api.header"
  sed -nE 's/^ *token: (.*)/Authorization: Bearer \1/p' "$ETC/bootstrap-kubeconfig" >"$ETC/api.header"
  header=(-H "@$ETC/api.header")
fi
answer() {
  local code
  code=$(curl -sS --cacert "$ETC/ca.crt" --max-time 10 -o /dev/null -w '%{http_code}' "${header[@]}" https://127.0.0.1:7445/version)
  printf 'the API server answers %s\n' "$code"
  [[ $code == 200 || $code == 401 || $code == 403 ]]
}
try 180 answer || die "the API server $API_SERVER cannot be reached, or its certificate is not of the cluster's CA"
erase "$ETC/api.header"

step containerd
mkdir -p "$R/etc/containerd/conf.d" "$R/etc/cni/net.d" "$R/opt/cni/bin"
containerd config default | sed -E 's/^([[:space:]]*SystemdCgroup = )false/\1true/' >"$R/etc/containerd/config.toml"
grep -q 'SystemdCgroup = true' "$R/etc/containerd/config.toml" || die "containerd's default configuration has no SystemdCgroup"
((!NVIDIA)) || nvidia-ctk runtime configure --runtime=containerd --set-as-default >>"$LOG" 2>&1 || die "nvidia-ctk"
systemctl enable containerd >>"$LOG" 2>&1
systemctl restart containerd
try 60 ctr version || die "containerd does not answer"
if [[ $CNI == local ]]; then
  install -m 644 "$ETC/cni.conflist" "$R/etc/cni/net.d/05-tgp.conflist"
elif [[ ! -x $R/opt/cni/bin/flannel ]]; then
  fetch "$FLANNEL_CNI_URL" "$R/var/lib/tgp/flannel.tgz" || die "the flannel CNI plugin cannot be fetched"
  printf '%s  %s\n' "$FLANNEL_CNI_SHA256" "$R/var/lib/tgp/flannel.tgz" | sha256sum -c - >>"$LOG" ||
    die "the flannel CNI plugin has another checksum"
  tar -xzf "$R/var/lib/tgp/flannel.tgz" -C "$R/var/lib/tgp"
  plugin=$(find "$R/var/lib/tgp" -maxdepth 2 -type f -name 'flannel*' ! -name '*.tgz' | head -n 1)
  [[ -n $plugin ]] || die "the flannel archive has no plugin in it"
  install -m 755 "$plugin" "$R/opt/cni/bin/flannel"
fi

step kubelet
mkdir -p "$PKI" "$R/etc/kubernetes/pki" "$R/etc/systemd/system/kubelet.service.d"
install -m 644 "$ETC/ca.crt" "$R/etc/kubernetes/pki/ca.crt"
install -m 644 "$ETC/kubelet-config.yaml" "$R/var/lib/kubelet/config.yaml"
BOOT=
if [[ ! -e $PKI/kubelet-client-current.pem ]]; then
  [[ -f $ETC/bootstrap-kubeconfig ]] || die "neither a client certificate nor a bootstrap token is here"
  BOOT="--bootstrap-kubeconfig=/etc/tgp/bootstrap-kubeconfig"
fi
cat >"$R/etc/systemd/system/kubelet.service.d/20-tgp.conf" <<EOF
[Unit]
After=containerd.service tailscaled.service tgp-api.socket
Wants=containerd.service
[Service]
ExecStart=
ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml $BOOT --kubeconfig=/etc/kubernetes/kubelet.conf \\
 --cert-dir=/var/lib/kubelet/pki --hostname-override=$NODE_NAME ${NODE_IP:+--node-ip=$NODE_IP} \\
 --node-labels=$NODE_LABELS $KUBELET_EXTRA_ARGS
Restart=always
RestartSec=5
EOF
systemctl daemon-reload
systemctl enable kubelet >>"$LOG" 2>&1
systemctl restart kubelet
try "${CSR_TIMEOUT:-600}" test -e "$PKI/kubelet-client-current.pem" ||
  die "no client certificate: token wrong or expired, or nobody approved the request (journalctl -u kubelet)"

step erase
erase "$ETC/authkey" "$ETC/bootstrap-kubeconfig" "$R"/var/lib/cloud/instances/*/user-data.txt*
[[ ! -f $R/etc/environment ]] || sed -i '/TGP_PAYLOAD_/d' "$R/etc/environment"
sed -i 's, --bootstrap-kubeconfig=[^ ]*,,' "$R/etc/systemd/system/kubelet.service.d/20-tgp.conf"
touch "$R/var/lib/tgp/done"
step "done"
"""
