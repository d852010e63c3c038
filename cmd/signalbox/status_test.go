package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// statusOfNode starts a node that replies to status only, and returns its port. It refuses requests without this token.
// got returns the tokens that it has received.
func statusOfNode(t *testing.T, token string) (port string, got func() string) {
	t.Helper()
	seen := make(chan string, 100)
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := r.Header.Get("Authorization")
		seen <- header
		if token != "" && header != "Bearer "+token {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"type":"about:blank","code":"unauthenticated","title":"Unknown","status":401}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"cluster":"c1","node":"n1","leader":"n1","members":[]}`)
	}))
	t.Cleanup(node.Close)
	return node.URL[strings.LastIndex(node.URL, ":")+1:], func() string {
		all := ""
		for len(seen) > 0 {
			all += <-seen
		}
		return all
	}
}

// status runs the verb without a deadline.
func status(t *testing.T, arguments ...string) outcome {
	var stdout, stderr written
	status := run(t.Context(), append([]string{"status", "--timeout", "200ms"}, arguments...), lookup(t), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// TestStatusHidesTokens: the user of an address counts as a token, and is not printed.
func TestStatusHidesTokens(t *testing.T) {
	port, got := statusOfNode(t, "")
	for _, format := range []string{"table", "json"} {
		o := status(t, "--addr", "http://s3cret@127.0.0.1:"+port, "-o", format)
		if o.status != 0 || strings.Contains(o.stdout+o.stderr, "s3cret") || !strings.Contains(o.stdout, "http://127.0.0.1:"+port) {
			t.Errorf("%+v", o)
		}
		if got() == "" {
			t.Error("the user was not sent")
		}
	}
}

// TestStatusInMove: during the move to HTTPS a node is listed by http:// and by https://. The http:// address gets no
// token. (0.0.0.0 is this machine, but its name does not say so.)
func TestStatusInMove(t *testing.T) {
	port, got := statusOfNode(t, "")
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("s3cret"), 0o600))
	for _, order := range []string{"http://0.0.0.0:%[1]s,https://0.0.0.0:%[1]s", "https://0.0.0.0:%[1]s,http://0.0.0.0:%[1]s"} {
		o := status(t, "--addr", fmt.Sprintf(order, port), "--token-file", file)
		if o.status != 0 || !strings.Contains(o.stdout, "cluster c1") {
			t.Errorf("%+v", o)
		}
		if sent := got(); sent != "" {
			t.Errorf("the node got %q over plain HTTP", sent)
		}
	}
}

// TestStatusOfFailures: the exit status is 6 if no node replies, 7 if one node does not reply, and 5 if a node refuses.
// JSON has each address even if no node has replied. An address that refuses connections is not tried again.
func TestStatusOfFailures(t *testing.T) {
	port, _ := statusOfNode(t, "other")
	refuses := "http://127.0.0.1:" + port
	replies, _ := statusOfNode(t, "")
	for addresses, want := range map[string]int{
		refuses: 5,
		"http://127.0.0.1:" + replies + "," + refuses:         5,
		refuses + ",http://127.0.0.1:1":                       6,
		"http://127.0.0.1:1," + refuses:                       6,
		"http://127.0.0.1:1":                                  6,
		"http://127.0.0.1:1,http://127.0.0.1:" + replies:      7,
		"http://127.0.0.1:" + replies + ",http://127.0.0.1:1": 7,
	} {
		began := time.Now()
		o := status(t, "--addr", addresses, "-o", "json", "--timeout", "10s")
		if took := time.Since(began); took >= 10*time.Second {
			t.Errorf("%s took %v", addresses, took)
		}
		var all []map[string]any
		if err := json.Unmarshal([]byte(o.stdout), &all); err != nil || len(all) != 1+strings.Count(addresses, ",") || o.status != want {
			t.Errorf("%s: %v, wanted status %d: %+v", addresses, err, want, o)
		}
	}
}

// TestStatusJudgesMembers: a node that has replied is asked again once another has not, since it may only then know that
// the other is down, but not because another has refused the token; a disk that is short of space is a reason for status 7; a level that is not known is no level 0.
func TestStatusJudgesMembers(t *testing.T) {
	var members []string // in each reply; the last stays
	requests := 0
	refusing, _ := statusOfNode(t, "other")
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"cluster":"c1","node":"n1","leader":"n1","level":1,"members":[{"id":"n1","voter":true,"state":"up","knows":1,"storage":"room"},{"id":"n2","voter":true,%s}]}`, members[0])
		members = members[min(1, len(members)-1):]
		requests++
	}))
	defer node.Close()
	const silent = ",http://127.0.0.1:1"
	for _, c := range []struct {
		more     string
		members  []string
		requests int
		status   int
		words    string
	}{
		{"", []string{`"state":"up","knows":1,"storage":"room"`}, 1, 0, ""},
		{silent, []string{`"state":"up","knows":1,"storage":"room"`, `"state":"down","knows":1,"last_contact_ms":4000`}, 2, 7, "n2 is down for 4s"},
		{silent, []string{`"state":"up","knows":1,"storage":"room"`}, 2, 7, "It may have ended just now"},
		{",http://127.0.0.1:" + refusing, []string{`"state":"up","knows":1,"storage":"room"`}, 1, 5, "token"},
		{"", []string{`"state":"up","knows":1,"storage":"full"`}, 1, 7, "the disk of n2 is full"},
		{"", []string{`"state":"up","knows":1,"storage":"low"`}, 1, 7, "the disk of n2 is low"},
		{"", []string{`"state":"unknown","knows":0`}, 1, 0, ""},
	} {
		members, requests = c.members, 0
		o := status(t, "--addr", node.URL+c.more)
		if requests != c.requests || o.status != c.status || !strings.Contains(o.stderr, c.words) || strings.Contains(o.stdout, " 0\n") {
			t.Errorf("%s%s: %d requests, %+v", c.members, c.more, requests, o)
		}
	}
}
