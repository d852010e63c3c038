package main

import (
	"regexp"
	"strings"
	"testing"
)

// TestIdentify: each way in which a build is named gives a semantic version, which is never a commit, and the commit
// separately.
func TestIdentify(t *testing.T) {
	for text, want := range map[string][2]string{
		"v1.2.3": {"1.2.3", "unknown"}, "1.2.3": {"1.2.3", "unknown"}, "v2.0.0-rc.1+build": {"2.0.0-rc.1", "unknown"},
		"v1.2.3-0-g1234567": {"1.2.3", "1234567"}, "v1.2.3-4-g1234567-dirty": {"1.2.3", "1234567-dirty"}, "v2.0.0-rc.1-0-g1234567": {"2.0.0-rc.1", "1234567"},
		"1234567": {release, "1234567"}, "1234567-dirty": {release, "1234567-dirty"},
		"v0.0.0-20261122004309-4281b99abcde": {release, "4281b99abcde"}, "v1.2.4-0.20261122004309-4281b99abcde+dirty": {"1.2.4", "4281b99abcde+dirty"},
		"v1.3.0-rc.1.0.20261122004309-4281b99abcde": {"1.3.0-rc.1", "4281b99abcde"},
		"": {release, "unknown"}, "(devel)": {release, "unknown"}, "v1.2": {release, "unknown"}, "v01.2.3": {release, "unknown"}, "nightly": {release, "unknown"},
	} {
		if number, commit := identify(text); number != want[0] || commit != want[1] {
			t.Errorf("%q is version %q of commit %q, want %q", text, number, commit, want)
		}
	}
}

// TestStampedVersion: GET /version, the verb and the flag show the version that the linker has set. Only the verb also
// shows the commit.
func TestStampedVersion(t *testing.T) {
	before := stamped
	t.Cleanup(func() { stamped = before })
	stamped = "v7.8.9-rc.1-2-gabcdef1"
	_, c, _ := startDev(t.Context(), t, 1)
	if status, body := get(t, c.bases[0]+"/version"); status != 200 || body != "7.8.9" {
		t.Errorf("GET /version: %d %q", status, body)
	}
	if o := command(t, []string{"version"}); o.status != 0 || !strings.HasPrefix(o.stdout, "signalbox 7.8.9-rc.1 commit abcdef1 go") {
		t.Errorf("%+v", o)
	}
	if o := command(t, []string{"--version"}); o.status != 0 || o.stdout != "signalbox version 7.8.9-rc.1\n" {
		t.Errorf("%+v", o)
	}
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(release) {
		t.Errorf("%q is no version of three numbers", release)
	}
}
