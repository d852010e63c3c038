package client

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
)

// TestProcessInMetadata: the client adds the host, process and user to the metadata of a session, as far as they fit
// beside the caller's entries. It adds no entry if Anonymous is set.
func TestProcessInMetadata(t *testing.T) {
	host, _ := os.Hostname()
	full := map[string]string{}
	for i := range metadataPairs {
		full[fmt.Sprint(i)] = "x"
	}
	room := metadataBytes - len("x")
	for _, pair := range process() {
		room -= len(pair[0]) + len(pair[1])
	}
	for name, c := range map[string]struct {
		given map[string]string
		has   string // of host, pid and user
	}{
		"nothing given":    {nil, "host pid user"},
		"another host":     {map[string]string{"host": "rack 7"}, "pid user"},
		"empty on purpose": {map[string]string{"user": ""}, "host pid"},
		"too many":         {full, ""},
		"too long":         {map[string]string{"x": strings.Repeat("y", metadataBytes-1)}, ""},
		"just enough":      {map[string]string{"x": strings.Repeat("y", room)}, "host pid user"},
		"a byte too much":  {map[string]string{"x": strings.Repeat("y", room+1)}, "host pid"},
		"not in UTF-8":     {map[string]string{"x": "\xff"}, ""},
	} {
		want := map[string]string{}
		for _, pair := range process() {
			if strings.Contains(c.has, pair[0]) {
				want[pair[0]] = pair[1]
			}
		}
		maps.Copy(want, c.given)
		if got := withProcess(c.given); !maps.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
		body := map[string]any{}
		(&Client{cfg: Config{Anonymous: true}}).describe(body, c.given)
		if got, _ := body["metadata"].(map[string]string); !maps.Equal(got, c.given) {
			t.Errorf("%s, anonymous: %v", name, got)
		}
	}
	if all := withProcess(nil); all["host"] != host || all["pid"] != fmt.Sprint(os.Getpid()) || all["user"] == "" {
		t.Errorf("%v", all)
	}
}
