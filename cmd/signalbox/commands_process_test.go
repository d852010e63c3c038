//go:build processes && linux

package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// guarded is a cluster with mutual TLS, HTTPS and tokens, and what its commands need.
type guarded struct{ *securing }

// command runs a subcommand and returns its status and all that it has printed. The
// environment brings no credentials.
func (s *guarded) command(t *testing.T, arguments ...string) (status int, output string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	command := exec.CommandContext(ctx, testProgram, arguments...)
	command.Env = []string{asProgram + "=1", "HOME=" + s.TempDir(), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	text, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", arguments, err)
	}
	return command.ProcessState.ExitCode(), string(text)
}

// startGuarded starts three nodes that trust the first authority alone.
func startGuarded(t *testing.T) *guarded {
	t.Helper()
	s := &guarded{securing: newSecuring(t)}
	s.files.authority("stranger")
	must(t, os.WriteFile(s.files.file("wrong.token"), []byte("sbt_"+strings.Repeat("A", 43)+"\n"), 0o600))
	s.c = newProcesses(t, testProgram)
	s.keys.TokenFile = s.files.file("admin.token")
	move := &moving{}
	move.https.Store(true)
	move.next = s.transport(&http.Transport{})
	s.c.client = &client{bases: s.c.bases, http: &http.Client{Transport: move}}
	for node, id := range []string{"n1", "n2", "n3"} {
		s.c.own[node] = s.files.tokens(id)
	}
	s.c.startAll()
	return s
}

// flags returns the flags of a command with a token and an authority; "" leaves one out.
func (s *guarded) flags(scheme, token, authority string) (flags []string) {
	var addresses []string
	for node := range s.c.running {
		addresses = append(addresses, strings.Replace(s.c.url(node), "http", scheme, 1))
	}
	flags = []string{"--addr", strings.Join(addresses, ",")}
	if token != "" {
		flags = append(flags, "--token-file", s.files.file(token+".token"))
	}
	if authority != "" {
		flags = append(flags, "--ca", s.files.file(authority+"/ca.pem"))
	}
	return flags
}

// TestCommandsOfASecuredCluster runs the commands that talk to a cluster with the right
// credentials, and with others: each refusal names its reason, and changes nothing.
func TestCommandsOfASecuredCluster(t *testing.T) {
	t.Parallel()
	s := startGuarded(t)
	s.c.must(t, 0, http.MethodPut, "/v1/semaphores/db", `{"permits":3}`, http.StatusCreated)
	backup := filepath.Join(t.TempDir(), "state")
	work := func(verb string) []string {
		return map[string][]string{
			"run": {"run", "db", "--wait", "0", "--", "true"}, "ls": {"ls", "-o", "name"}, "resize": {"resize", "db", "9"},
			"backup": {"backup", backup}, "restore": {"restore", backup, "--yes"},
		}[verb]
	}
	for _, c := range []struct {
		verb, scheme, token, authority string
		status                         int
		words                          string
	}{
		{"run", "https", "app", "first", 0, ""},
		{"ls", "https", "app", "first", 0, "db\n"},
		{"backup", "https", "app", "first", 5, "403 forbidden"},
		{"backup", "https", "", "first", 5, "401 unauthenticated"},
		{"backup", "https", "wrong", "first", 5, "401 unauthenticated"},
		{"backup", "https", "admin", "stranger", 6, "certificate signed by unknown authority"},
		{"backup", "http", "admin", "", 5, "takes HTTPS alone"},
		{"backup", "https", "admin", "first", 0, ""},
		{"run", "https", "", "first", 5, "401 unauthenticated"},
		{"run", "https", "wrong", "first", 5, "401 unauthenticated"},
		{"run", "https", "app", "stranger", 6, "certificate signed by unknown authority"},
		{"run", "http", "app", "", 5, "takes HTTPS alone"},
		{"ls", "https", "", "first", 5, "401 unauthenticated"},
		{"ls", "https", "app", "stranger", 6, "Give the file with the cluster's authority by --ca."},
		{"ls", "http", "app", "", 5, "takes HTTPS alone"},
		{"resize", "https", "", "first", 5, "401 unauthenticated"},
		{"restore", "https", "app", "first", 5, "403 forbidden"},
		{"restore", "https", "wrong", "first", 5, "401 unauthenticated"},
		{"restore", "https", "admin", "stranger", 6, "certificate signed by unknown authority"},
		{"restore", "https", "admin", "first", 0, "restored, at index"},
	} {
		arguments := work(c.verb)
		flags := s.flags(c.scheme, c.token, c.authority)
		arguments = append(arguments[:1:1], append(flags, arguments[1:]...)...)
		status, output := s.command(t, arguments...)
		if status != c.status || !strings.Contains(output, c.words) {
			t.Errorf("%s over %s, token %q, authority %q: status %d, not %d with %q:\n%s", c.verb, c.scheme, c.token, c.authority, status, c.status, c.words, output)
		}
		if _, err := os.Stat(backup); c.verb == "backup" && (err == nil) != (c.status == 0) {
			t.Errorf("backup with status %d: %v", c.status, err)
		}
		if after := s.c.must(t, 0, http.MethodGet, "/v1/semaphores/db", "", http.StatusOK); after.Permits != 3 || after.Available != 3 {
			t.Errorf("%s changed the semaphore: %+v", c.verb, after)
		}
	}
	s.c.waitReady(1)                                                         // a restored state holds it up for a moment
	for authority, want := range map[string]int{"first": 0, "stranger": 1} { // a probe needs no token
		url := strings.Replace(s.c.url(1), "http", "https", 1) + "/readyz"
		if status, output := s.command(t, "healthcheck", "--url", url, "--ca", s.files.file(authority+"/ca.pem")); status != want {
			t.Errorf("healthcheck, authority %q: status %d: %s", authority, status, output)
		}
	}
}
