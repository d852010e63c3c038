package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// operations is docs/operations.md.
func operations(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every flag of serve has its row in docs/operations.md, with its variable and
// its default, and every row its flag.
func TestOperationsHaveEveryFlag(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `(SIGNALBOX_[A-Z_]+)` \\| (?:`([^`]*)` )?\\| \\S")
	rows := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(operations(t), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("two rows of --%s", m[1])
		}
		rows[m[1]] = m[2] + " = " + m[3]
	}
	newServe(lookup(t)).Flags().VisitAll(func(flag *pflag.Flag) {
		want := variable(flag.Name) + " = " + strings.Trim(flag.DefValue, "[]")
		if got := rows[flag.Name]; got != want {
			t.Errorf("docs/operations.md has --%s as %q, not %q", flag.Name, got, want)
		}
		delete(rows, flag.Name)
	})
	for name := range rows {
		t.Errorf("docs/operations.md has --%s, which is no flag", name)
	}
}

// Every figure that nodes at work show has its row in docs/operations.md, and every
// name there is one that they show.
func TestOperationsHaveEveryMetric(t *testing.T) {
	_, c, _ := startDev(t.Context(), t, 2, "--dialects", strings.Join(allDialects(), ","))
	c.must(t, 0, http.MethodPut, semaphorePath("db"), `{"permits":1}`, http.StatusCreated)
	c.must(t, 0, http.MethodPost, semaphorePath("db")+"/leases", "", http.StatusCreated)
	c.must(t, 0, http.MethodGet, semaphorePath("db"), "", http.StatusOK) // once it has applied all that
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (signalbox_\w+) `).FindAllStringSubmatch(metricsOf(t, c), -1) {
		shown[m[1]] = true
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(signalbox_\\w+)").FindAllStringSubmatch(operations(t), -1) {
		named[m[1]] = true
		if !shown[m[1]] {
			t.Errorf("docs/operations.md has %s, which no node shows", m[1])
		}
	}
	for name := range shown {
		if !named[name] {
			t.Errorf("docs/operations.md hasn't %s", name)
		}
	}
	if len(shown) < 20 {
		t.Errorf("only %d figures are shown", len(shown))
	}
}

// The dashboard and the alert rules use metrics and labels that nodes at work show;
// scripts/alerts.sh checks their expressions.
func TestDashboardAndAlertsKnowTheMetrics(t *testing.T) {
	_, c, _ := startDev(t.Context(), t, 2)
	c.must(t, 0, http.MethodPut, semaphorePath("db"), `{"permits":1}`, http.StatusCreated)
	c.must(t, 0, http.MethodGet, semaphorePath("db"), "", http.StatusOK) // once it has applied that
	page := metricsOf(t, c)
	for _, file := range []string{"grafana/signalbox.json", "prometheus/alerts.yaml"} {
		text, err := os.ReadFile("../../packaging/" + file)
		if err != nil {
			t.Fatal(err)
		}
		used := regexp.MustCompile(`(signalbox_\w+?)(?:_bucket|_count|_sum)?(?:\{([^}]*)\}|\b)`).FindAllStringSubmatch(string(text), -1)
		if len(used) < 15 {
			t.Errorf("%s has %d metrics", file, len(used))
		}
		for _, m := range used {
			if !strings.Contains(page, "# TYPE "+m[1]+" ") {
				t.Errorf("%s has %s, which no node shows", file, m[1])
			}
			for _, label := range regexp.MustCompile(`(\w+)(?:=|!)`).FindAllStringSubmatch(m[2], -1) {
				series := regexp.MustCompile(`(?m)^` + m[1] + `\w*\{[^\n]*\b` + label[1] + `="`)
				if label[1] != "job" && !series.MatchString(page) {
					t.Errorf("%s has the label %s of %s, which no node shows", file, label[1], m[1])
				}
			}
		}
	}
}

// metricsOf is the page of the first node.
func metricsOf(t *testing.T, c *client) string {
	t.Helper()
	response, err := c.http.Get(c.bases[0] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(fmt.Errorf("%s: %w", response.Status, err))
	}
	return string(text)
}
