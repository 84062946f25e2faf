// Copyright (c) 2026, the tgp.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Tailscale's own Go client of its API, for tests to call the emulator with.
//
// The first line on stdin is {"url", "key"} or {"url", "client", "secret"}; each later line is one call, answered by one line on stdout:
// {"data": what the client made of the answer}, {"status": 404, "message": its APIError} or {"failed": any other error of the client}.
// It connects to the loopback interface only.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	tailscale "tailscale.com/client/tailscale/v2"
)

type configuration struct {
	URL    string
	Key    string
	Client string
	Secret string
}

type call struct {
	Method  string
	ID      string
	Text    string
	ETag    string
	Fields  string
	Flag    bool
	Words   []string
	Filters map[string][]string
	Auth    tailscale.CreateKeyRequest
	OAuth   tailscale.CreateOAuthClientRequest
	Tests   []tailscale.ACLTest
}

type answer struct {
	Data    any    `json:"data,omitempty"`
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	var said configuration
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &said) != nil {
		fmt.Fprintln(os.Stderr, "the first line is not the configuration")
		os.Exit(2)
	}
	client, err := made(said)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var wanted call
		if err := json.Unmarshal(lines.Bytes(), &wanted); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		data, err := run(client, wanted)
		if err := out.Encode(told(data, err)); err != nil {
			os.Exit(1)
		}
	}
}

func made(said configuration) (*tailscale.Client, error) {
	base, err := url.Parse(said.URL)
	if err != nil {
		return nil, err
	}
	if base.Hostname() != "127.0.0.1" {
		return nil, fmt.Errorf("%s is not the loopback interface", base.Host)
	}
	dialer := &net.Dialer{}
	http.DefaultTransport = &http.Transport{ // the one that tokens are fetched with, too
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if host, _, _ := net.SplitHostPort(address); host != "127.0.0.1" {
				return nil, fmt.Errorf("the client may not connect to %s", address)
			}
			return dialer.DialContext(ctx, network, address)
		},
	}
	client := &tailscale.Client{BaseURL: base, APIKey: said.Key, HTTP: &http.Client{Timeout: 30 * time.Second}}
	if said.Client != "" {
		client.Auth = &tailscale.OAuth{ClientID: said.Client, ClientSecret: said.Secret}
	}
	return client, nil
}

func told(data any, err error) answer {
	var refused tailscale.APIError
	switch {
	case errors.As(err, &refused):
		return answer{Status: refused.Status, Message: refused.Message}
	case err != nil:
		return answer{Failed: err.Error()}
	}
	return answer{Data: data}
}

func run(client *tailscale.Client, wanted call) (any, error) {
	ctx, keys, devices, policy := context.Background(), client.Keys(), client.Devices(), client.PolicyFile()
	switch wanted.Method {
	case "CreateAuthKey":
		return keys.CreateAuthKey(ctx, wanted.Auth)
	case "CreateOAuthClient":
		return keys.CreateOAuthClient(ctx, wanted.OAuth)
	case "GetKey":
		return keys.Get(ctx, wanted.ID)
	case "ListKeys":
		return keys.List(ctx, wanted.Flag)
	case "DeleteKey":
		return nil, keys.Delete(ctx, wanted.ID)
	case "ListDevices":
		options := []tailscale.ListDevicesOptions{tailscale.WithFields(tailscale.IncludeFields(wanted.Fields))}
		for name, values := range wanted.Filters {
			options = append(options, tailscale.WithFilter(name, values))
		}
		return devices.List(ctx, options...)
	case "GetDevice":
		return devices.Get(ctx, wanted.ID)
	case "GetDeviceWithAllFields":
		return devices.GetWithAllFields(ctx, wanted.ID)
	case "DeleteDevice":
		return nil, devices.Delete(ctx, wanted.ID)
	case "SetAuthorized":
		return nil, devices.SetAuthorized(ctx, wanted.ID, wanted.Flag)
	case "SetName":
		return nil, devices.SetName(ctx, wanted.ID, wanted.Text)
	case "SetTags":
		return nil, devices.SetTags(ctx, wanted.ID, wanted.Words)
	case "SetKey":
		return nil, devices.SetKey(ctx, wanted.ID, tailscale.DeviceKey{KeyExpiryDisabled: wanted.Flag})
	case "SetIPv4Address":
		return nil, devices.SetIPv4Address(ctx, wanted.ID, wanted.Text)
	case "SetSubnetRoutes":
		return nil, devices.SetSubnetRoutes(ctx, wanted.ID, wanted.Words)
	case "SubnetRoutes":
		return devices.SubnetRoutes(ctx, wanted.ID)
	case "GetPolicy":
		return policy.Get(ctx)
	case "RawPolicy":
		return policy.Raw(ctx)
	case "SetPolicy":
		return nil, policy.Set(ctx, wanted.Text, wanted.ETag)
	case "ValidatePolicy":
		return nil, policy.Validate(ctx, wanted.Text)
	case "ValidateTests":
		return nil, policy.Validate(ctx, wanted.Tests)
	case "GetSettings":
		return client.TailnetSettings().Get(ctx)
	}
	return nil, fmt.Errorf("there is no call %q", wanted.Method)
}
