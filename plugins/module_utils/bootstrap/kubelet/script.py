# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that makes a stock Ubuntu machine a worker of a Talos cluster. It reads /etc/tgp/node.env; nothing is filled into it.

Each step leaves its name in /run/tgp.step and a line "tgp-step NAME" on the console and in /var/log/tgp-bootstrap.log; the first
failure leaves "fail NAME" and ends it. Every wait has an end. It may be run again at any point, also after a reboot; on a machine
that is a node already it does nothing, because systemd must not be reloaded below pods that hold GPUs.
For tests TGP_ROOT moves every file below another folder, TGP_PATIENCE is the percentage of every wait, TGP_PAUSE the seconds
between two tries, TGP_CONSOLE another console.
"""

from __future__ import annotations

from .script_host import HOST

_JOIN = r"""step mesh
if [[ $MESH_BACKEND == tailscale ]]; then
  systemctl enable --now tailscaled >>"$LOG" 2>&1
  if [[ -f $ETC/authkey ]]; then
    # one use of a one-use key: after a lost answer the state tells whether the login took place
    read -r -a extra <<<"$MESH_EXTRA_ARGS"
    tailscale ip -4 >/dev/null 2>&1 ||
      timeout 150 tailscale up --authkey="file:$ETC/authkey" --hostname="$MESH_HOSTNAME" --accept-dns=false --timeout=120s \
        ${MESH_LOGIN_SERVER:+"--login-server=$MESH_LOGIN_SERVER"} "${extra[@]}" </dev/null >>"$LOG" 2>&1 ||
      die "tailscale up failed (key used or expired, its tag not owned, or no way to the server): $(said .)"
  fi
  try 60 tailscale ip -4 || die "no address in the tailnet, and no key to get one"
  NODE_IP=$(tailscale ip -4 | head -n 1)
  erase "$ETC/authkey"
elif [[ $MESH_BACKEND == wireguard ]]; then
  [[ -f $R/etc/wireguard/$MESH_INTERFACE.conf ]] || die "/etc/wireguard/$MESH_INTERFACE.conf is missing: no key, so no tunnel"
  chmod 700 "$R/etc/wireguard"
  chmod 600 "$R/etc/wireguard/$MESH_INTERFACE.conf"
  systemctl enable "wg-quick@$MESH_INTERFACE" >>"$LOG" 2>&1
  # the tunnel of an earlier try may have an earlier key
  systemctl restart "wg-quick@$MESH_INTERFACE" >>"$LOG" 2>&1 || {
    journalctl -u "wg-quick@$MESH_INTERFACE" -n 20 -o cat --no-pager >>"$LOG" 2>&1 || true
    die "the tunnel $MESH_INTERFACE does not come up: $(said 'RTNETLINK|[Ee]rror|[Uu]nable|[Uu]nknown|not ')"
  }
  # the hub learns this machine's key only when its cloud has named it; keepalive tries again and again
  shaken() {
    local last
    last=$(wg show "$MESH_INTERFACE" latest-handshakes | awk -v hub="$MESH_HUB_KEY" '$1 == hub { print $2 }')
    ((${last:-0} > 0))
  }
  try 180 shaken || die "no handshake with the hub at $MESH_ENDPOINT: nothing listens there, its UDP port is closed, or it does not know this" \
    "machine's key yet ($(wg show "$MESH_INTERFACE" public-key))"
  NODE_IP=$MESH_ADDRESS
fi

step api
host=${API_SERVER%:*}
host=${host#[}
host=${host%]}
address=$(getent ahosts "$host" | sed -n '1s/ .*//p' || true)
if [[ -z $address ]]; then
  # a name of the tailnet's own DNS is known to tailscale, not to this machine's resolver (--accept-dns=false)
  [[ $MESH_BACKEND != tailscale ]] ||
    address=$(tailscale ip -4 "$host" 2>>"$LOG" || tailscale ip -4 "${host%%.*}" 2>>"$LOG" || true)
  [[ -n $address ]] || die "the name $host of the API server is known neither to DNS nor to the mesh"
  API_SERVER=$address:${API_SERVER##*:}
fi
[[ $MESH_BACKEND != none ]] ||
  NODE_IP=$(ip -o route get "$address" 2>>"$LOG" | sed -nE '1s/.* src ([0-9a-fA-F.:]+).*/\1/p' || true)
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
systemctl try-restart tgp-api.service >>"$LOG" 2>&1 # an earlier try may have had another API server
# An answer proves route, CA and name: 200 or 403 with the token, and without one also the 401 of Talos. The token
# (YAML quotes one that looks like a number) goes by file, not by argument.
header=()
CODE=000 STATUS=0 UNAUTHORIZED=0
if [[ -f $ETC/bootstrap-kubeconfig && ! -e $PKI/kubelet-client-current.pem ]]; then
  install -m 600 /dev/null "$ETC/api.header"
  sed -nE "s/^ *token: '?([^']*)'?\$/Authorization: Bearer \1/p" "$ETC/bootstrap-kubeconfig" >"$ETC/api.header"
  header=(-H "@$ETC/api.header")
fi
answer() {
  STATUS=0
  CODE=$(curl -sS --cacert "$ETC/ca.crt" --max-time 10 -o /dev/null -w '%{http_code}' "${header[@]}" https://127.0.0.1:7445/version) ||
    STATUS=$?
  printf 'the API server answers %s (curl: %s)\n' "$CODE" "$STATUS"
  case $CODE in
    200 | 403) ;;
    401) ((!${#header[@]} || ++UNAUTHORIZED > 9)) ;;
    *) return 1 ;;
  esac
}
try 180 answer || [[ $CODE == 401 ]] || {
  why=$(said '^curl: ')
  # a connection that the forwarder has to close at once ends in status 35 as well, but without these words
  [[ $STATUS != 60 && ! ($STATUS == 35 && $why =~ asn1|signature|certificate|verif) ]] ||
    die "the certificate of $API_SERVER is not of the cluster's CA, or this machine's clock is wrong: $why"
  if [[ $MESH_BACKEND == none ]]; then
    hint="no route or a firewall"
  elif [[ $MESH_BACKEND == wireguard ]]; then
    hint="the tunnel to the hub stands, so the hub does not forward there, it has no way back to $NODE_IP, or nothing listens there"
  elif timeout 20 tailscale ping --c 1 --timeout 10s "$host" >>"$LOG" 2>&1; then
    hint="its machine is in the tailnet, so a grant for tcp:${API_SERVER##*:} is missing or nothing listens there"
  else
    hint="it does not answer tailscale ping either: it is not in the tailnet, or the policy hides it"
  fi
  die "the API server $API_SERVER cannot be reached: $hint"
}
erase "$ETC/api.header"
((!${#header[@]})) || [[ $CODE != 401 ]] || die "the API server does not know the bootstrap token: expired, deleted, or of another cluster"

step containerd
mkdir -p "$R/etc/containerd/conf.d" "$R/etc/cni/net.d" "$R/opt/cni/bin"
containerd config default | sed -E 's/^([[:space:]]*SystemdCgroup = )false/\1true/' >"$R/etc/containerd/config.toml"
grep -q 'SystemdCgroup = true' "$R/etc/containerd/config.toml" || die "containerd's default configuration has no SystemdCgroup"
((!NVIDIA)) || nvidia-ctk runtime configure --runtime=containerd --set-as-default >>"$LOG" 2>&1 || die "nvidia-ctk"
systemctl enable containerd >>"$LOG" 2>&1
systemctl restart containerd
try 60 ctr version || die "containerd does not answer"
((!NVIDIA)) || [[ $(containerd config dump 2>>"$LOG") == *nvidia-container-runtime* ]] || die "containerd does not know the runtime nvidia"
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
# after a reboot the mesh needs a moment for its address, and the kubelet takes no other
WAIT=
[[ $MESH_BACKEND == none ]] ||
  WAIT="ExecStartPre=/usr/bin/timeout 80 /bin/sh -c 'until ip -o address show to $NODE_IP/32 | grep -q .; do sleep 1; done'"
cat >"$R/etc/systemd/system/kubelet.service.d/20-tgp.conf" <<EOF
[Unit]
After=containerd.service tailscaled.service tgp-api.socket
Wants=containerd.service
StartLimitIntervalSec=0
[Service]
$WAIT
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
if ! try "${CSR_TIMEOUT:-600}" test -e "$PKI/kubelet-client-current.pem"; then
  journalctl -u kubelet -n 40 -o cat --no-pager >>"$LOG" 2>&1 || true
  why=$(said '^[EF][0-9]{4}|[Ee]rror|^[[:space:]]*failed to ')
  die "no client certificate: token expired, nobody approved the request, or the kubelet does not start: $why"
fi

step erase
erase "$ETC/authkey" "$ETC/bootstrap-kubeconfig" "$R"/var/lib/cloud/instances/*/{user-data.txt*,cloud-config.txt,scripts/*}
[[ ! -f $R/etc/environment ]] || sed -i '/TGP_PAYLOAD_/d' "$R/etc/environment"
sed -i 's, --bootstrap-kubeconfig=[^ ]*,,' "$R/etc/systemd/system/kubelet.service.d/20-tgp.conf"
touch "$R/var/lib/tgp/done"
step "done"
"""
BOOTSTRAP = HOST + _JOIN
