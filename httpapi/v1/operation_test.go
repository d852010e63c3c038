package v1

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
)

func TestDocsHaveEveryOperation(t *testing.T) {
	docs, err := os.ReadFile("../../docs/api-many.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^    ([a-z-]+) {2,}([a-z0-9_?, ]+(?:\n {20}[a-z0-9_?, ]+)*)$")
	rows := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(docs), -1) {
		rows[m[1]] = m[2]
	}
	if len(rows) != len(operations) {
		t.Errorf("%d rows for %d operations", len(rows), len(operations))
	}
	for _, op := range operations {
		var taken, needed fields
		for _, name := range regexp.MustCompile(`,\s+`).Split(rows[op.name], -1) {
			m, known := bodyMembers[strings.TrimSuffix(name, "?")]
			if !known {
				t.Errorf("%s: %q is no member", op.name, name)
			}
			taken |= m.field
			if !strings.HasSuffix(name, "?") {
				needed |= m.field
			}
		}
		if taken|fieldOp|fieldKey != op.batchFields() || needed != op.batchRequired() {
			t.Errorf("%s: the row says %s", op.name, rows[op.name])
		}
	}
}

// Each limit that an operator sets has a row. The limits of an identity come with the refusal itself.
func TestLimitsAreComplete(t *testing.T) {
	for rule := fsm.RuleSemaphores; rule.String() != "unknown"; rule++ {
		if _, listed := configuredLimits[rule]; !listed && rule != fsm.RuleNotices && rule < fsm.RuleOwnerSessions {
			t.Errorf("no row for the limit %v", rule)
		}
	}
}
