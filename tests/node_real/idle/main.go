// Copyright (c) 2026, the tgp.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// All that a pod of the node level contains: it says hello and waits to be told to end. With arguments it tells what it sees:
// "say TEXT" repeats, "get URL" fetches once without looking at the certificate and prints the status.
package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "say":
		fmt.Println(strings.Join(os.Args[2:], " "))
	case len(os.Args) > 2 && os.Args[1] == "get":
		blind := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		answer, err := (&http.Client{Transport: blind, Timeout: 10 * time.Second}).Get(os.Args[2])
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(answer.StatusCode)
	default:
		fmt.Println("hello from a pod")
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
		<-ended
		fmt.Println("told to end")
	}
}
