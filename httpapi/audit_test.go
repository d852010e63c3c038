package httpapi_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/httpapi/audit"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/nodered"
	"github.com/signalbox/signalbox/test/apitest"
)

// lines is an audit log in memory.
type lines struct {
	log *audit.Log

	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

// withAudit opens an audit log in memory, and serves Node-RED with every callback.
func withAudit(t *testing.T, cfg *apitest.Config) *lines {
	t.Helper()
	l := &lines{}
	var err error
	if l.log, err = audit.Open(audit.Config{Path: audit.Stderr, Stderr: l, Node: "n1", Logger: hclog.NewNullLogger()}); err != nil {
		t.Fatal(err)
	}
	cfg.Exchange.Audit = l.log
	cfg.Dialects["nodered"] = func(x *exchange.Exchange) (exchange.Dialect, error) {
		return nodered.New(x, nodered.Config{CheckCallback: func(string) error { return nil }}), nil
	}
	return l
}

// end closes the log and returns its lines, without time and node.
func (l *lines) end(t *testing.T) (text []string) {
	t.Helper()
	l.log.Close()
	for line := range strings.Lines(l.text.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
		text = append(text, strings.TrimSpace(regexp.MustCompile(`"time":"[^"]*","node":"n1",`).ReplaceAllString(line, "")))
	}
	return text
}
