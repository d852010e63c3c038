package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunBadFlags: none of them asks a node.
func TestRunBadFlags(t *testing.T) {
	plainFile := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plainFile, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		arguments string
		status    int
		words     []string
	}{
		{"no dashes", "db true", statusUsage, []string{"--", "COMMAND"}},
		{"no name", "-- true", statusUsage, []string{"one name"}},
		{"two names", "db web -- true", statusUsage, []string{"one name"}},
		{"no command", "db --", statusUsage, []string{"no command"}},
		{"nothing", "", statusUsage, []string{"--"}},
		{"unknown flag", "db --level 3 -- true", statusUsage, []string{"unknown flag: --level"}},
		{"no number", "db -n many -- true", statusUsage, []string{"many"}},
		{"none", "db -n 0 -- true", statusUsage, []string{"--count", "above 0"}},
		{"no permits", "db --permits 0 -- true", statusUsage, []string{"--permits", "above 0"}},
		{"short ttl", "db --ttl 999ms -- true", statusUsage, []string{"--ttl", "1s"}},
		{"wait backwards", "db --wait -1s -- true", statusUsage, []string{"--wait"}},
		{"long grace", "db --ttl 30s --grace 15s -- true", statusUsage, []string{"--grace", "14s"}},
		{"grace backwards", "db --grace -1s -- true", statusUsage, []string{"--grace"}},
		{"no address", "db --addr= -- true", statusUsage, []string{"--addr"}},
		{"no URL", "db --addr http://n1:8701,ftp://n2 -- true", statusUsage, []string{"--addr", "ftp://n2"}},
		{"no such command", "db -- no-such-command-anywhere", statusNotFound, []string{"no-such-command-anywhere"}},
		{"no such file", "db -- ./no/such/file", statusNotFound, []string{"./no/such/file"}},
		{"no program", "db -- " + plainFile, statusCantRun, []string{plainFile, "permission denied"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := command(t, append([]string{"run"}, strings.Fields(c.arguments)...))
			o.refused(t, c.words...)
			if o.status != c.status {
				t.Errorf("status %d, not %d", o.status, c.status)
			}
		})
	}
	t.Run("variables", func(t *testing.T) {
		arguments := []string{"run", "db", "--wait", "100ms", "--", "true"}
		o := command(t, arguments, "SIGNALBOX_ADDR", "http://127.0.0.1:1,http://127.0.0.1:2")
		if o.status != statusUnavailable || !strings.Contains(o.stderr, "127.0.0.1:") || strings.Contains(o.stderr, "8701") {
			t.Errorf("%+v", o)
		}
		if o = command(t, arguments, "SIGNALBOX_TTL", "soon"); o.status != statusUsage || !strings.Contains(o.stderr, "SIGNALBOX_TTL") {
			t.Errorf("%+v", o)
		}
	})
}

func TestRunMetadataIsPlain(t *testing.T) {
	for text, want := range map[string]string{
		"make":                         "make",
		"a\x00b\nc":                    "a b c",
		"\xff":                         "?",
		strings.Repeat("é", 101):       strings.Repeat("é", 100),
		"x" + strings.Repeat("é", 100): "x" + strings.Repeat("é", 99),
	} {
		if got := plain(text); got != want {
			t.Errorf("%q is told as %q, not %q", text, got, want)
		}
	}
}
