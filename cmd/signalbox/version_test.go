package main

import "testing"

// GET /version is read by programs: a number of three parts, never a commit.
func TestSemanticVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "v1.2.3-4-g1234567-dirty": "1.2.3", "v2.0.0-rc.1+build": "2.0.0", "1234567": release, "1234567-dirty": release,
		"devel": release, "": release, "v0.0.0-20261122004309-4281b99abcde": release, "v1.2": release, "v01.2.3": release,
	} {
		if got := semanticVersion(version); got != want {
			t.Errorf("%q is %q, want %q", version, got, want)
		}
	}
	_, c, _ := startDev(t.Context(), t, 1)
	if status, body := get(t, c.bases[0]+"/version"); status != 200 || !semantic.MatchString(body) || semanticVersion(body) != body {
		t.Errorf("GET /version: %d %q", status, body)
	}
}
