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
)

// statusOfNode starts a node that replies to status alone, and returns its port. It refuses
// the tokens that it is not given, and reports those that it got.
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

// TestStatusInMove: in the move to HTTPS a node is listed by http:// and https://, and the
// first one gets no token. (0.0.0.0 is this machine, but not by its name.)
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

// TestStatusOfFailures: the exit status is 6 if no node replies, 5 if one refuses, 7 if one does not reply;
// JSON has each address even if no node has replied.
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
		o := status(t, "--addr", addresses, "-o", "json")
		var all []map[string]any
		if err := json.Unmarshal([]byte(o.stdout), &all); err != nil || len(all) != 1+strings.Count(addresses, ",") || o.status != want {
			t.Errorf("%s: %v, wanted status %d: %+v", addresses, err, want, o)
		}
	}
}
