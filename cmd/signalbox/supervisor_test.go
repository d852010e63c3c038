package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSupervisorIsNotified: a node reports that it serves, that it is alive, and that it stops. A SIGHUP does not end
// it.
func TestSupervisorIsNotified(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	defer manager.Close()
	receive := func() string {
		t.Helper()
		buf := make([]byte, 1<<10)
		must(t, manager.SetReadDeadline(time.Now().Add(20*time.Second)))
		n, err := manager.Read(buf)
		must(t, err)
		return string(buf[:n])
	}
	port := freePorts(t, 0, 1)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	var stdout, stderr written
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"serve", "--ephemeral", "--http", address, "--peer", fmt.Sprintf("127.0.0.1:%d", port+1)},
			lookup(t, "NOTIFY_SOCKET", socket, "WATCHDOG_USEC", "30000"), &stdout, &stderr)
	}()
	if got := receive(); got != "READY=1" {
		t.Fatalf("first %q: %s", got, stderr.String())
	}
	newClient("http://"+address).must(t, 0, http.MethodGet, "/livez", "", http.StatusOK)
	hangUp(t)
	for range 3 {
		if got := receive(); got != "WATCHDOG=1" {
			t.Errorf("%q while it serves", got)
		}
	}
	stop()
	got := receive()
	for got == "WATCHDOG=1" {
		got = receive()
	}
	if got != "STOPPING=1" {
		t.Errorf("%q when it stops", got)
	}
	if ended := <-status; ended != 0 {
		t.Errorf("status %d: %s", ended, stderr.String())
	}
}

// TestSystemdUnit: each variable that the unit sets is known to serve. The unit uses each credential that it loads, and
// lets systemd watch and confine the process.
func TestSystemdUnit(t *testing.T) {
	text, err := os.ReadFile("../../packaging/systemd/signalbox.service")
	must(t, err)
	settings, environment := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		if key, value, any := strings.Cut(strings.TrimSpace(line), "="); any && !strings.HasPrefix(key, "#") {
			settings[key] = append(settings[key], value)
		}
	}
	flags := newServe(lookup(t)).Flags()
	known := map[string]bool{}
	for _, set := range settings["Environment"] {
		name, value, _ := strings.Cut(set, "=")
		environment += value + "\n"
		flag := flags.Lookup(strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "SIGNALBOX_")), "_", "-"))
		if flag == nil || variable(flag.Name) != name {
			t.Errorf("%s is the variable of no flag", name)
		}
		known[name] = true
	}
	if len(known) == 0 || len(settings["LoadCredential"]) == 0 {
		t.Error("the unit sets no variables, or loads no credentials")
	}
	for _, credential := range settings["LoadCredential"] {
		name, _, _ := strings.Cut(credential, ":")
		if !regexp.MustCompile(`(?m)^%d/` + regexp.QuoteMeta(name) + `$`).MatchString(environment) {
			t.Errorf("credential %s is used by no variable", name)
		}
	}
	for _, used := range regexp.MustCompile(`%d/(.*)`).FindAllStringSubmatch(environment, -1) {
		if !slices.ContainsFunc(settings["LoadCredential"], func(loaded string) bool { return strings.HasPrefix(loaded, used[1]+":") }) {
			t.Errorf("credential %s is not loaded", used[1])
		}
	}
	for key, want := range map[string]string{
		"Type": "notify", "NotifyAccess": "main", "WatchdogSec": "60s", "DynamicUser": "yes", "StateDirectory": "signalbox",
		"StateDirectoryMode": "0700", "UMask": "0077", "ProtectSystem": "strict", "ProtectHome": "yes", "NoNewPrivileges": "yes", "PrivateTmp": "yes",
		"PrivateDevices": "yes", "CapabilityBoundingSet": "", "MemoryDenyWriteExecute": "yes", "RestrictNamespaces": "yes",
		"RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX", "SystemCallArchitectures": "native",
		"ExecReload": "/bin/kill -HUP $MAINPID",
	} {
		if got := settings[key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, not %q", key, got, want)
		}
	}
}
