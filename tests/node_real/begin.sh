#!/bin/bash
# First process of a machine of the stand, in namespaces of its own: its root is this machine's, with everything that it writes in memory.
#   begin.sh FOLDER DEBIAN NAME=BINARY...      FOLDER has given/, the files that are there from the start
set -eu
folder=$1 debian=$2
shift 2
mount -t tmpfs -o size=40g,mode=755 tmpfs "$folder/memory"
cd "$folder/memory"
mkdir upper work root
mount -t overlay -o "lowerdir=/,upperdir=upper,workdir=work" overlay root
mount -t proc proc root/proc
mount -t sysfs sysfs root/sys
mount --rbind /dev root/dev
for place in run tmp var/log var/lib/containerd var/lib/kubelet sys/bus/pci/devices sys/fs/cgroup; do
  mkdir -p "root/$place"
  mount -t tmpfs -o size=40g,mode=755 tmpfs "root/$place"
done
for controller in /sys/fs/cgroup/*/; do
  name=$(basename "$controller")
  mkdir "root/sys/fs/cgroup/$name"
  mount --bind "/sys/fs/cgroup/$name" "root/sys/fs/cgroup/$name"
done
cp -a --remove-destination "$debian/." "$folder/given/." root/
for pair in "$@"; do
  place=root/usr/bin/${pair%%=*}
  rm -f "$place"
  touch "$place"
  mount --bind "${pair#*=}" "$place"
done
mkdir root/old
cd root
pivot_root . old
cd /
umount -l /old
mount --make-rshared /
ip link set lo up
echo begun >/run/begun
trap : TERM
while :; do
  sleep 3600 &
  wait
done
