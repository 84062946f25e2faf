# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that the pods of the DaemonSet nvidia-powerlimit run: POSIX shell, with what each image of nvcr.io/nvidia/cuda has.

Each round asks nvidia-smi for all GPUs, corrects a limit that differs from the table, and logs one line of JSON:

``{"time": …, "node": …, "state": …, "message": …, "gpus": [{"index": …, "uuid": …, "model": …, "state": …, "change": …, …}]}``

States of a GPU, from good to bad; the state of the node is the worst of its GPUs:

* ``unlisted``: the table has no limit for this model; its limit stays as it is.
* ``applied``: the limit is the wanted one. ``change`` says ``set`` or ``drift_corrected`` when this round changed it.
* ``not_supported``: the driver offers no power limit for this GPU.
* ``not_permitted``: the driver refuses the change, as on most rented virtual machines. It is tried once per start of the pod.
* ``out_of_range``: the card does not accept this number of watts. It is not tried.
* ``failed``: anything else; the next round tries again.

A node whose nvidia-smi does not answer is ``waiting``: it is asked again after RETRY_SECONDS.
"""

from __future__ import annotations

SCRIPT = r"""#!/bin/sh
# Holds the power limits of this machine's NVIDIA GPUs. Written by the Ansible collection tgp.gpu.
#   power-limit.sh         apply the limits, check them every INTERVAL_SECONDS, log one line of JSON per round
#   power-limit.sh ready   exit status 0 if every listed GPU has its limit; else the reason
# Table: lines of "WATTS MODEL", the model as nvidia-smi names it. A leading "NVIDIA " is ignored: older drivers leave it out.
set -u
export LC_ALL=C
table=${TABLE:-/etc/nvidia-powerlimit/limits}
run=${STATE_DIR:-/run/nvidia-powerlimit}
interval=${INTERVAL_SECONDS:-1800}
retry=${RETRY_SECONDS:-10}
seconds=${TIMEOUT_SECONDS:-60}
persistence=${PERSISTENCE_MODE:-1}
node=${NODE_NAME:-unknown}
fields=index,uuid,power.limit,power.min_limit,power.max_limit,power.draw,utilization.gpu,persistence_mode,name

if [ "${1-}" = ready ]; then
  state=waiting why='the first round has not ended'
  if [ -r "$run/state" ]; then { read -r state; read -r why; } <"$run/state"; fi
  echo "$state: $why"
  [ "$state" = applied ]
  exit
fi

refused='' held='' warned='' last='' silent=0
# The last program in the background ends, too. $! is right from its first moment on; a variable would be set a moment later.
stop() {
  set +u
  kill "$!" 2>/dev/null
  exit 0
}
trap stop TERM INT
# Whatever takes time runs in the background: a shell acts on a signal only while it waits.
nap() { sleep "$1" & wait "$!"; }
# smi ARGUMENTS...: its answer is in $run/out and $status
smi() {
  timeout -k 5 "$seconds" nvidia-smi "$@" >"$run/out" 2>&1 </dev/null &
  wait "$!"
  status=$?
}
# plain TEXT: safe inside a JSON string
plain() { printf '%s' "$1" | tr '\t' ' ' | tr -d '\000-\037"\\\177-\377' | cut -c 1-300; }
# why: what the last call of nvidia-smi ended with, in one line
why() {
  case $status in
    124 | 137) echo "nvidia-smi did not answer within $seconds s" ;;
    126 | 127) echo "nvidia-smi is not in this container; the runtime class nvidia puts it there" ;;
    *)
      line=$(sed -e '/^[Ww]arning/d' -e '/^[0-9][0-9]*, /d' -e '/^[[:space:]]*$/d' "$run/out" | head -n 1)
      plain "nvidia-smi ended with status $status: ${line:-no output}"
      ;;
  esac
}
# warn KEY TEXT: once per start of this program
warn() {
  case $warned in *"|$1|"*) return ;; esac
  warned="$warned|$1|"
  echo "warning: $2"
}
has() { case $1 in *" $2 "*) return 0 ;; esac; return 1; }
is_number() { case $1 in '' | .* | *[!0-9.]*) return 1 ;; esac; }
# number TEXT: as JSON has it; "[N/A]" and the like are null
number() { if is_number "$1"; then printf '%s' "$1"; else printf null; fi; }
# same WATTS WATTS: equal but for rounding; the first may be "[N/A]"
same() {
  is_number "$1" || return 1
  off=$((${1%%.*} - $2))
  [ "$off" -ge -1 ] && [ "$off" -le 1 ]
}
# limit_of MODEL: its watts of the table, nothing if it is not listed
limit_of() {
  while read -r watts model; do
    if [ "${model#NVIDIA }" = "${1#NVIDIA }" ]; then echo "$watts"; fi
  done <"$table"
}
# state_is STATE [MESSAGE]: of the GPU that is looked at; the worst is the state of the node
state_is() {
  state=$1
  case $state in
    unlisted) rank=0 ;; applied) rank=1 ;; not_supported) rank=2 ;; not_permitted) rank=3 ;; out_of_range) rank=4 ;; *) rank=5 ;;
  esac
  if [ "$rank" -gt "$worst" ]; then worst=$rank node_state=$state message=${2-}; fi
}
no_limit() { state_is "$1" "$gpu: $2"; warn "$uuid $wanted $1" "$gpu: $2"; }
keep_loaded() {
  if [ "$persistence" != 1 ] || [ "$mode" != Disabled ] || has "$refused" "$uuid/pm"; then return; fi
  smi -i "$uuid" -pm 1
  if [ "$status" = 0 ]; then mode=Enabled; return; fi
  refused="$refused $uuid/pm "
  warn "$uuid pm" "$gpu: persistence mode stays off: $(why). The driver may drop the limit when no program uses the GPU."
}
set_limit() {
  before=$limit
  smi -i "$uuid" -pl "$wanted"
  said=$(why) text=$(cat "$run/out")
  case $status/$text in
    4/* | *[Pp]ermission*)
      refused="$refused $uuid/not_permitted "
      no_limit not_permitted "this machine does not permit to change power limits ($said)"
      return
      ;;
    3/* | *'not supported'*)
      refused="$refused $uuid/not_supported "
      no_limit not_supported "its driver does not support power limits ($said)"
      return
      ;;
  esac
  set_status=$status
  smi -i "$uuid" --query-gpu=power.limit --format=csv,noheader,nounits
  if [ "$status" = 0 ]; then limit=$(sed -n '/^[0-9]/{p;q;}' "$run/out"); fi
  if ! same "$limit" "$wanted"; then
    if [ "$set_status" = 0 ]; then said="nvidia-smi reports success and the limit is still $(plain "$limit") W"; fi
    no_limit failed "$wanted W were not applied: $said"
    return
  fi
  change='set' how='set'
  if has "$held" "$uuid"; then change=drift_corrected how='set again after it drifted'; fi
  echo "$gpu: power limit $how: ${before%%.*} W -> $wanted W"
  state_is applied
}
one_gpu() {
  gpu="GPU $index ($name)" change=none
  wanted=$(limit_of "$name" | tail -n 1)
  keep_loaded
  if [ -z "$wanted" ]; then
    state_is unlisted
    warn "$uuid unlisted" "$gpu: no power limit is listed for this model; its limit stays as it is"
  elif ! is_number "$limit"; then
    no_limit not_supported "nvidia-smi reports no power limit for it (${limit:-nothing})"
  elif same "$limit" "$wanted"; then
    state_is applied
  elif { is_number "$min" && [ "$wanted" -lt "${min%%.*}" ]; } || { is_number "$max" && [ "$wanted" -gt "${max%%.*}" ]; }; then
    no_limit out_of_range "$wanted W are outside of what this card accepts, $(plain "$min") to $(plain "$max") W; its limit stays at $limit W"
  elif has "$refused" "$uuid/not_permitted"; then
    no_limit not_permitted 'this machine does not permit to change power limits'
  elif has "$refused" "$uuid/not_supported"; then
    no_limit not_supported 'its driver does not support power limits'
  else
    set_limit
  fi
  if [ "$state" = applied ] && ! has "$held" "$uuid"; then held="$held $uuid "; fi
  gpus="$gpus${gpus:+, }{\"index\": $index, \"uuid\": \"$uuid\", \"model\": \"$name\", \"state\": \"$state\", \"change\": \"$change\", \
\"limit_watts\": $(number "$limit"), \"wanted_watts\": $(number "$wanted"), \"min_watts\": $(number "$min"), \
\"max_watts\": $(number "$max"), \"draw_watts\": $(number "$draw"), \"utilization_percent\": $(number "$use"), \
\"persistence_mode\": \"$mode\"}"
}
one_round() {
  worst=-1 node_state=waiting message='' gpus=''
  smi --query-gpu=$fields --format=csv,noheader,nounits
  asked=$status answer=$(why)
  # only lines that begin with the number of a GPU: drivers print warnings among them
  sed -n 's/, */,/g; /^[0-9][0-9]*,[^,]*,/p' "$run/out" | tr -d '"\134' >"$run/gpus"
  while IFS=, read -r index uuid limit min max draw use mode name; do one_gpu; done <"$run/gpus"
  if [ "$worst" = -1 ]; then message=$answer
  elif [ "$asked" != 0 ]; then node_state=failed message="not all GPUs answered: $answer"
  elif [ "$node_state" = unlisted ]; then message="no power limit is listed for the models of this node"
  fi
}
report() {
  message=$(plain "${message:-every listed GPU has its limit}")
  printf '%s\n%s\n' "$node_state" "$message" >"$run/state.new" && mv "$run/state.new" "$run/state"
  # one line per round; while it waits, one when the reason changes and one per interval
  if [ "$node_state" = waiting ] && [ "$message" = "$last" ] && [ "$silent" -lt "$interval" ]; then silent=$((silent + retry)); return; fi
  last=$message silent=0
  printf '{"time": "%s", "node": "%s", "state": "%s", "message": "%s", "gpus": [%s]}\n' \
    "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(plain "$node")" "$node_state" "$message" "$gpus"
}
while :; do
  one_round
  report
  if [ "$node_state" = waiting ]; then nap "$retry"; else nap "$interval"; fi
done
"""
