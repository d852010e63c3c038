package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// serveVariables are the variables of the flags of serve.
func serveVariables(t *testing.T) (all []string) {
	newServe(lookup(t)).Flags().VisitAll(func(flag *pflag.Flag) { all = append(all, variable(flag.Name)) })
	return all
}

// TestPackagedSettings: the file of settings that the packages install sets no variable. Each setting that it proposes
// is a flag of serve.
func TestPackagedSettings(t *testing.T) {
	text, err := os.ReadFile("../../packaging/systemd/node.env")
	must(t, err)
	known, proposed := serveVariables(t), 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			t.Errorf("the file sets %s", line)
		}
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "#"), "="); ok && strings.HasPrefix(name, "SIGNALBOX_") {
			proposed++
			if !slices.Contains(known, name) {
				t.Errorf("%s is the variable of no flag of serve", name)
			}
		}
	}
	if proposed < 5 {
		t.Errorf("the file proposes %d variables", proposed)
	}
}

// TestChart: the Helm chart has this version. In the environment of its nodes there are only variables of serve.
func TestChart(t *testing.T) {
	const folder = "../../packaging/helm/signalbox"
	about, err := os.ReadFile(filepath.Join(folder, "Chart.yaml"))
	must(t, err)
	for _, name := range []string{"version", "appVersion"} {
		if line := name + ": " + release; !slices.Contains(strings.Split(string(about), "\n"), line) {
			t.Errorf("Chart.yaml has no line %q", line)
		}
	}
	set, err := os.ReadFile(filepath.Join(folder, "templates/statefulset.yaml"))
	must(t, err)
	used := regexp.MustCompile(`name: (SIGNALBOX_\w+)`).FindAllStringSubmatch(string(set), -1)
	for _, m := range used {
		if !slices.Contains(serveVariables(t), m[1]) {
			t.Errorf("%s is the variable of no flag of serve", m[1])
		}
	}
	if len(used) < 10 {
		t.Errorf("the chart sets %d variables", len(used))
	}
}
