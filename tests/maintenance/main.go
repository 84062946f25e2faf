// Copyright (c) 2026, the tgp.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Both ends of Talos's machine API as a machine in maintenance mode has it, made of Talos's own messages, for tests to compare with.
//
//	maintenance serve [-mode metal]              serve on loopback until stdin ends
//	maintenance call ADDRESS FINGERPRINT CONFIG  what the machine says of itself, and of the configuration in file CONFIG
//
// serve prints {"port", "fingerprint"} first and then, for each configuration it was sent, {"config", "mode", "dry_run", "unknown",
// "taken"}. A configuration that Talos takes ends the maintenance: from then on it wants a client certificate. call prints {"version",
// "arch", "platform", "mode", "warnings", "taken_as", "details"}.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

type mode string

func (m mode) String() string        { return string(m) }
func (m mode) RequiresInstall() bool { return m == "metal" }
func (m mode) InContainer() bool     { return m == "container" }

type server struct {
	machine.UnimplementedMachineServiceServer
	mode       mode
	configured atomic.Bool
	out        *json.Encoder
	lock       sync.Mutex
}

func (s *server) say(what any) {
	s.lock.Lock()
	defer s.lock.Unlock()
	_ = s.out.Encode(what)
}

func (s *server) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	return &machine.VersionResponse{Messages: []*machine.Version{{
		Version:  &machine.VersionInfo{Tag: "v1.13.9", Sha: "witness", Os: "linux", Arch: "amd64"},
		Platform: &machine.PlatformInfo{Name: "metal", Mode: s.mode.String()},
		Features: &machine.FeaturesInfo{Rbac: true},
	}}}, nil
}

func (s *server) ApplyConfiguration(_ context.Context, in *machine.ApplyConfigurationRequest) (*machine.ApplyConfigurationResponse, error) {
	taken := false
	defer func() {
		s.say(map[string]any{
			"config": in.GetData(), "mode": in.GetMode().String(), "dry_run": in.GetDryRun(),
			"unknown": len(in.ProtoReflect().GetUnknown()), "taken": taken,
		})
	}()
	provider, err := configloader.NewFromBytes(in.GetData())
	if err != nil {
		return nil, fmt.Errorf("failed to parse config: %w", err)
	}
	warnings, err := provider.Validate(s.mode)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "configuration validation failed: %s", err)
	}
	taken = true
	s.configured.Store(true)
	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{{
		Warnings: append(warnings, "a warning with ü"), Mode: machine.ApplyConfigurationRequest_NO_REBOOT, ModeDetails: "taken by the witness",
	}}}, nil
}

func identity() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	form := &stdx509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "maintenance-service.talos.dev"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := stdx509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := stdx509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	chosen := flags.String("mode", "metal", "metal or cloud")
	if err := flags.Parse(args); err != nil {
		return err
	}
	own, err := identity()
	if err != nil {
		return err
	}
	s := &server{mode: mode(*chosen), out: json.NewEncoder(os.Stdout)}
	secure := func(wanted tls.ClientAuthType) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: wanted, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
	}
	config := secure(tls.NoClientCert)
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if s.configured.Load() {
			return secure(tls.RequireAndVerifyClientCert), nil
		}
		return nil, nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	api := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	machine.RegisterMachineServiceServer(api, s)
	s.say(map[string]any{"port": listener.Addr().(*net.TCPAddr).Port, "fingerprint": x509.SPKIFingerprint(own.Leaf).String()})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		api.Stop()
	}()
	return api.Serve(listener)
}

func call(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("call needs ADDRESS FINGERPRINT CONFIG")
	}
	wanted, err := x509.ParseFingerprint(args[1])
	if err != nil {
		return err
	}
	config, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	secure := &tls.Config{InsecureSkipVerify: true, VerifyConnection: x509.MatchSPKIFingerprints(wanted)}
	conn, err := grpc.NewClient(args[0], grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client := machine.NewMachineServiceClient(conn)
	version, err := client.Version(ctx, &emptypb.Empty{})
	if err != nil {
		return err
	}
	request := &machine.ApplyConfigurationRequest{Data: config, Mode: machine.ApplyConfigurationRequest_AUTO}
	applied, err := client.ApplyConfiguration(ctx, request)
	if err != nil {
		return err
	}
	said, result := version.GetMessages()[0], applied.GetMessages()[0]
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"version": said.GetVersion().GetTag(), "arch": said.GetVersion().GetArch(),
		"platform": said.GetPlatform().GetName(), "mode": said.GetPlatform().GetMode(),
		"warnings": result.GetWarnings(), "taken_as": strings.ToLower(result.GetMode().String()), "details": result.GetModeDetails(),
	})
}

func main() {
	commands := map[string]func([]string) error{"serve": serve, "call": call}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: maintenance serve [-mode metal|cloud] | maintenance call ADDRESS FINGERPRINT CONFIG")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "maintenance:", err)
		os.Exit(1)
	}
}
