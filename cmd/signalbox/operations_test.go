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

// TestRunHasEveryFlag: docs/run.md has a row with the default of each flag of serve, and no other row. The name of each
// flag's variable follows the rule on the page.
func TestRunHasEveryFlag(t *testing.T) {
	page := pages(t)["docs/run.md"]
	if !strings.Contains(page, "`--node-id` is `SIGNALBOX_NODE_ID`") {
		t.Error("docs/run.md has no rule for the variables of flags")
	}
	row := regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (?:`([^`]*)`: )?\\S")
	rows := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("two rows of --%s", m[1])
		}
		rows[m[1]] = m[2]
	}
	newServe(lookup(t)).Flags().VisitAll(func(flag *pflag.Flag) {
		if name := "SIGNALBOX_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_")); variable(flag.Name) != name {
			t.Errorf("the variable of --%s is %s, not %s", flag.Name, variable(flag.Name), name)
		}
		got, found := rows[flag.Name]
		if want := strings.Trim(flag.DefValue, "[]"); !found || got != want {
			t.Errorf("docs/run.md has --%s (%t) with the default %q, not %q", flag.Name, found, got, want)
		}
		delete(rows, flag.Name)
	})
	for name := range rows {
		t.Errorf("docs/run.md has --%s, which is no flag", name)
	}
}

// TestRunHasEveryMetric: docs/run.md names every metric that working nodes show, and the pages for operators name no
// other metric.
func TestRunHasEveryMetric(t *testing.T) {
	_, c, _ := startDev(t.Context(), t, 2, "--dialects", strings.Join(allDialects(), ","))
	c.must(t, 0, http.MethodPut, semaphorePath("db"), `{"permits":1,"groups":"request"}`, http.StatusCreated)
	c.must(t, 0, http.MethodPost, semaphorePath("db")+"/leases", "", http.StatusCreated)
	c.must(t, 0, http.MethodGet, semaphorePath("db"), "", http.StatusOK) // once it has applied all that
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (signalbox_\w+) `).FindAllStringSubmatch(metricsOf(t, c), -1) {
		shown[m[1]] = true
	}
	texts, metric := pages(t), regexp.MustCompile("`(signalbox_\\w+)")
	for _, page := range []string{"docs/install.md", "docs/secure.md", "docs/run.md", "docs/repair.md"} {
		for _, m := range metric.FindAllStringSubmatch(texts[page], -1) {
			if !shown[m[1]] {
				t.Errorf("%s has %s, which no node shows", page, m[1])
			}
		}
	}
	for name := range shown {
		if !strings.Contains(texts["docs/run.md"], "`"+name+"`") {
			t.Errorf("docs/run.md hasn't %s", name)
		}
	}
	if len(shown) < 20 {
		t.Errorf("only %d figures are shown", len(shown))
	}
}

// The dashboard and the alert rules use only metrics and labels that working nodes show. scripts/alerts.sh checks their
// expressions.
func TestDashboardAndAlertsKnowTheMetrics(t *testing.T) {
	_, c, _ := startDev(t.Context(), t, 2)
	c.must(t, 0, http.MethodPut, semaphorePath("db"), `{"permits":1}`, http.StatusCreated)
	c.must(t, 0, http.MethodGet, semaphorePath("db"), "", http.StatusOK) // once it has applied that
	page := metricsOf(t, c)
	for _, file := range []string{"grafana/signalbox.json", "prometheus/alerts.yaml"} {
		text, err := os.ReadFile("../../packaging/" + file)
		must(t, err)
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
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(fmt.Errorf("%s: %w", response.Status, err))
	}
	return string(text)
}
