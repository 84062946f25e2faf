# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard of a machine of lane ``kubelet``: a timer that powers it off when it hears nothing of its cluster for long (L-46).

It decides as ``planner/garbage_collection/silence.py`` does, without a clock of day: it counts the seconds since boot, in /run, which a boot
empties. It has no credentials but the kubelet's own certificate. For tests TGP_ROOT moves every file below another folder, and TGP_API is
another address of the API server.
"""

from __future__ import annotations

import typing as t

PROGRAM = "/usr/local/sbin/tgp-guard"
SERVICE = "/etc/systemd/system/tgp-guard.service"
TIMER = "/etc/systemd/system/tgp-guard.timer"
SERVICE_UNIT: t.Final = """\
[Unit]
Description=Power this machine off when it hears nothing of its cluster for long
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/tgp-guard
TimeoutStartSec=300
"""
TIMER_UNIT: t.Final = """\
[Unit]
Description=Check every ten minutes whether this machine is still in use by its cluster
[Timer]
OnActiveSec=600
OnUnitActiveSec=600
AccuracySec=10
[Install]
WantedBy=timers.target
"""
GUARD: t.Final = r"""#!/bin/sh
# Powers this machine off when it hears nothing of its cluster for long. Written by the Ansible collection tgp.gpu (rule L-46).
# Settings: GUARD_* of /etc/tgp/node.env. Each look leaves a line in /var/log/tgp-guard.log when something changes.
set -u
umask 077
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
R=${TGP_ROOT:-}
API=${TGP_API:-https://127.0.0.1:7445}
PEM=$R/var/lib/kubelet/pki/kubelet-client-current.pem
STATE=$R/run/tgp-guard
# shellcheck source=/dev/null
. "$R/etc/tgp/node.env" || exit 1

say() { printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*" >>"$R/var/log/tgp-guard.log"; }
whole() { for n in "$@"; do case $n in '' | *[!0-9]* | ??????????*) return 1 ;; esac; done; }
# ask ARGUMENT...: the status of an answer, 000 without one; its text goes to $STATE.answer, what curl says against it to $STATE.said
ask() {
  curl -sS --max-time 30 --max-filesize 100000 --cacert "$R/etc/tgp/ca.crt" --cert "$PEM" -o "$STATE.answer" -w '%{http_code}' "$@" \
    2>"$STATE.said"
}

read -r up _ <"$R/proc/uptime"
up=${up%%.*}
whole "$up" || exit 1
last=$up api=0 controller=0 renewed=-
if [ -f "$STATE" ] && read -r last api controller renewed <"$STATE" && whole "$last" "$api" "$controller" && [ "$last" -le "$up" ]; then
  passed=$((up - last))
  [ "$passed" -le 1200 ] || passed=1200
else
  passed=0 api=0 controller=0 renewed=-
fi

seen=unknown time=
if [ -e "$PEM" ]; then
  code=$(ask "$API$GUARD_LEASE")
  status=$?
  case $status in
    0)
      seen=answer
      [ "$code" != 200 ] || time=$(sed -n 's/.*"renewTime": *"\([0-9TZ:.+-]*\)".*/\1/p' "$STATE.answer" 2>/dev/null | tail -n 1)
      [ -z "$time" ] || seen=renewed
      ;;
    # no name, no way, no time
    5 | 6 | 7 | 28 | 52 | 55) seen=silence ;;
    # closed by the forwarder, because nothing is behind it; a certificate that is not believed ends so, too
    35 | 56) grep -qiE 'asn1|signature|certificate|verif|alert' "$STATE.said" || seen=silence ;;
  esac
elif [ ! -e "$R/var/lib/tgp/done" ]; then
  seen='no node' # nothing of anybody's runs here
fi
rm -f "$STATE.answer" "$STATE.said"

why=
case $seen in
  silence | 'no node')
    api=$((api + passed))
    [ "$GUARD_SILENT_FOR" = never ] || [ "$api" -lt "$GUARD_SILENT_FOR" ] || why=api
    ;;
  renewed)
    api=0
    if [ "$time" = "$renewed" ]; then
      controller=$((controller + passed))
    else
      controller=0 renewed=$time
    fi
    [ "$GUARD_CONTROLLER_SILENT_FOR" = never ] || [ "$controller" -lt "$GUARD_CONTROLLER_SILENT_FOR" ] || why=controller
    ;;
  answer) api=0 ;;
esac
printf '%s %s %s %s\n' "$up" "$api" "$controller" "$renewed" >"$STATE.new" && mv -f "$STATE.new" "$STATE" || exit 1
[ -n "$why" ] || exit 0

say "powering off: nothing from the $why (seen: $seen; silence of the API server $api s, of the controller $controller s)"
if [ "$why" = controller ]; then
  code=$(ask -X PATCH -H 'Content-Type: application/merge-patch+json' --data-binary \
    '{"metadata":{"annotations":{"tgp.io/powered-off":"controller-silent"}},"spec":{"unschedulable":true}}' "$API/api/v1/nodes/$NODE_NAME")
  say "cordon: the API server answers $code"
  rm -f "$STATE.answer" "$STATE.said"
fi
exec systemctl poweroff
"""
