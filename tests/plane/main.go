// Copyright (c) 2026, the tgp.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// One binary for a whole Kubernetes control plane on loopback, plus the kubelet, and kubemark, which is one with a fake runtime.
// The first argument (or the name the binary is started under) chooses the program.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	kubemark "k8s.io/kubernetes/cmd/kubemark/app"
)

var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubemark":                kubemark.NewHollowNodeCommand,
}

func known(name string) bool {
	_, found := commands[name]
	return found || name == "etcd"
}

func main() {
	name := filepath.Base(os.Args[0])
	if !known(name) && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	switch {
	case name == "etcd":
		etcdmain.Main(os.Args)
	case known(name):
		os.Exit(cli.Run(commands[name]()))
	default:
		fmt.Fprintln(os.Stderr, "usage: plane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kubemark FLAGS")
		os.Exit(2)
	}
}
