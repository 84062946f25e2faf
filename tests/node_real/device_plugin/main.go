// Copyright (c) 2026, the tgp.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// A device plugin for a machine without GPUs: it reads the configuration file of NVIDIA's plugin (version v1, sharing.timeSlicing,
// flags.migStrategy none or mixed) and speaks the kubelet's real device-plugin API. As NVIDIA's, it advertises GPUs × replicas, refuses a
// request for more than one share where failRequestsGreaterThanOne says so, and registers again when the kubelet makes a new socket.
//
// Its machine has two GPUs. A GPU whose name stands in the file "unhealthy" beside the kubelet's socket is unhealthy. The file "mig" there
// says how MIG has divided each of them, as words of profile and number (1g.10gb 6 1g.10gb+me 1). With the strategy mixed each profile is
// a resource with a socket of its own, a plus sign in its name a dot, and no whole GPU is advertised; with none the file changes nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const every = 200 * time.Millisecond

var gpus = []string{"GPU-0", "GPU-1"}

// Config is the part of the file that a plugin without GPUs can obey. Keys that NVIDIA's plugin does not know stop it, too.
type Config struct {
	Version string
	Flags   struct {
		MigStrategy string         `yaml:"migStrategy"`
		Others      map[string]any `yaml:",inline"`
	}
	Sharing struct {
		TimeSlicing struct {
			RenameByDefault            bool `yaml:"renameByDefault"`
			FailRequestsGreaterThanOne bool `yaml:"failRequestsGreaterThanOne"`
			Resources                  []struct {
				Name     string
				Replicas int
			}
		} `yaml:"timeSlicing"`
	}
}

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource string
	endpoint string
	units    []string // GPUs, or MIG instances
	replicas int
	onlyOne  bool
}

// One plugin for each resource.
func read(path string) ([]*plugin, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var config Config
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return nil, err
	}
	if config.Version != "v1" {
		return nil, fmt.Errorf("unknown version %q", config.Version)
	}
	switch config.Flags.MigStrategy {
	case "", "none":
	case "mixed":
		if len(config.Sharing.TimeSlicing.Resources) > 0 {
			return nil, errors.New("this plugin shares no MIG instance")
		}
		if divided, err := instances(); err != nil || len(divided) > 0 {
			return divided, err
		}
	default:
		return nil, fmt.Errorf("this plugin has no migStrategy %q", config.Flags.MigStrategy)
	}
	made := &plugin{resource: "nvidia.com/gpu", endpoint: "nvidia-gpu.sock", units: gpus, replicas: 1}
	slicing := config.Sharing.TimeSlicing
	for _, one := range slicing.Resources {
		if one.Name != made.resource || one.Replicas < 1 {
			return nil, fmt.Errorf("cannot share %q by %d", one.Name, one.Replicas)
		}
		made.replicas = one.Replicas
	}
	if made.replicas > 1 {
		made.onlyOne = slicing.FailRequestsGreaterThanOne
		if slicing.RenameByDefault {
			made.resource += ".shared"
		}
	}
	return []*plugin{made}, nil
}

// What MIG made of the GPUs, by the file beside the kubelet's socket; nothing where it is not there.
func instances() ([]*plugin, error) {
	text, err := os.ReadFile(filepath.Join(api.DevicePluginPath, "mig"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	words := strings.Fields(string(text))
	if err != nil || len(words)%2 != 0 {
		return nil, fmt.Errorf("the file mig: %q, %v", text, err)
	}
	var all []*plugin
	for pair := range slices.Chunk(words, 2) {
		number, err := strconv.Atoi(pair[1])
		if err != nil {
			return nil, err
		}
		name := "mig-" + strings.ReplaceAll(pair[0], "+", ".")
		one := &plugin{resource: "nvidia.com/" + name, endpoint: "nvidia-" + name + ".sock", replicas: 1}
		for _, gpu := range gpus {
			for place := range number {
				one.units = append(one.units, fmt.Sprintf("MIG-%s-%s-%d", gpu, pair[0], place))
			}
		}
		all = append(all, one)
	}
	return all, nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// The kubelet counts ids and knows nothing of sharing.
func (p *plugin) devices() []*api.Device {
	text, _ := os.ReadFile(filepath.Join(api.DevicePluginPath, "unhealthy"))
	sick := strings.Fields(string(text))
	var all []*api.Device
	for _, gpu := range p.units {
		health := api.Healthy
		if slices.Contains(sick, gpu) {
			health = api.Unhealthy
		}
		for share := range p.replicas {
			all = append(all, &api.Device{ID: fmt.Sprintf("%s::%d", gpu, share), Health: health})
		}
	}
	return all
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	told := ""
	for stream.Context().Err() == nil {
		all := p.devices()
		if now := fmt.Sprint(all); now != told {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: all}); err != nil {
				return err
			}
			told = now
		}
		time.Sleep(every)
	}
	return stream.Context().Err()
}

func (p *plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		if p.onlyOne && len(container.DevicesIds) > 1 {
			return nil, fmt.Errorf("invalid allocation request for %q: maximum request size for shared resources is 1; found %d",
				p.resource, len(container.DevicesIds))
		}
		var given []string
		for _, id := range container.DevicesIds {
			if gpu, _, _ := strings.Cut(id, "::"); !slices.Contains(given, gpu) {
				given = append(given, gpu)
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses,
			&api.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(given, ",")}})
	}
	return answer, nil
}

// The kubelet of now: another one makes another socket.
func kubelet() (os.FileInfo, error) { return os.Stat(api.KubeletSocket) }

// Serve one kubelet, until it is gone or another one is there.
func (p *plugin) serve() error {
	present, err := kubelet()
	if err != nil {
		return err
	}
	socket := filepath.Join(api.DevicePluginPath, p.endpoint)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)

	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: p.endpoint, ResourceName: p.resource}
	if _, err := api.NewRegistrationClient(connection).Register(limited, request); err != nil {
		return err
	}
	log.Printf("Registered device plugin for '%s' with Kubelet", p.resource)
	for {
		time.Sleep(every)
		if now, err := kubelet(); err != nil || !os.SameFile(present, now) || !now.ModTime().Equal(present.ModTime()) {
			return errors.New("the kubelet made another socket")
		}
	}
}

func main() {
	path := os.Getenv("CONFIG_FILE")
	for _, word := range os.Args[1:] {
		if value, found := strings.CutPrefix(word, "--config-file="); found {
			path = value
		}
	}
	all, err := read(path)
	if err != nil {
		log.Fatalf("%s: %v", path, err)
	}
	for _, one := range all {
		go func() {
			for {
				log.Print(one.serve())
				time.Sleep(every)
			}
		}()
	}
	select {}
}
