package httpapi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/audit"
	"github.com/signalbox/signalbox/test/apitest"
)

// TestScripts are tables of the contract at a node without tokens.
func TestScripts(t *testing.T) { apitest.RunScripts(t, "testdata") }

// TestBrowserScripts: at a node that pages of two other origins may use.
func TestBrowserScripts(t *testing.T) {
	apitest.RunScripts(t, "testdata/browsers", withHosts(), func(cfg *apitest.Config) {
		cfg.HTTP.CORS = []string{"https://console.example:8443", "https://app.example"}
	})
}

// TestAccessScripts: at a node with tokens. "old COMMAND SESSION NAME COUNT" is a command from before
// the tokens.
func TestAccessScripts(t *testing.T) {
	clients := append(append([]client{{"boss", access.Admin, ""}}, twoTeams...), accessClients[:3]...)
	clients = append(clients, accessClients[4:]...)
	apitest.RunScriptsWith(t, apitest.Words{"old": performOld}, "testdata/access", func(cfg *apitest.Config) { withTokens(t, clients...)(cfg) }) // in the bubble
}

// TestLimitScripts: at nodes with tokens that have limits.
func TestLimitScripts(t *testing.T) {
	apitest.RunScripts(t, "testdata/limits", func(cfg *apitest.Config) {
		path := accessFile(t, client{"root", access.Admin, ""}, client{"ci", access.Use, ""}, client{"db", access.Use, ""})
		text, err := os.ReadFile(path)
		must(t, err)
		limited := strings.ReplaceAll(string(text), `scopes = ["use"]`, "scopes = [\"use\"]\nsessions = 3\nleases = 2\nwaiting = 1")
		must(t, os.WriteFile(path, []byte(limited), 0o600))
		cfg.Exchange.Tokens, err = access.Open(path)
		must(t, err)
		withThrottle(cfg)
	})
}

// TestAuditScripts: at a node with tokens and an audit log. "log LINE" is its next line, "logged IDENTITY
// OPERATION SESSION OUTCOME" are some members of it, and "unlogged TEXT" says that neither log has a text.
func TestAuditScripts(t *testing.T) {
	var logged bytes.Buffer
	var l *lines
	var left []string
	next := func(s *apitest.Site) string {
		if l.log != nil {
			left, l.log = l.end(s.T), nil
		}
		if len(left) == 0 {
			return "none"
		}
		line := left[0]
		left = left[1:]
		return line
	}
	words := apitest.Words{
		"old": performOld,
		"log": func(s *apitest.Site, values []string) {
			if got := next(s); got != values[0] {
				s.Errorf("logged %s", got)
			}
		},
		"logged": func(s *apitest.Site, values []string) {
			var r audit.Record
			line := next(s)
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				s.Fatalf("logged %s: %v", line, err)
			}
			if values[2] == "" {
				r.Session = ""
			}
			if !slices.Equal([]string{r.Identity, r.Operation, r.Session, r.Outcome}, values) {
				s.Errorf("logged %s", line)
			}
		},
		"unlogged": func(s *apitest.Site, values []string) {
			if logged.Len() == 0 || l.text.Len() == 0 || strings.Contains(logged.String()+l.text.String(), values[0]) {
				s.Errorf("the logs have %s, or nothing:\n%s%s", values[0], &logged, &l.text)
			}
		},
	}
	apitest.RunScriptsWith(t, words, "testdata/audit", func(cfg *apitest.Config) {
		logged.Reset()
		cfg.Exchange.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: &logged})
		withTokens(t, twoTeams...)(cfg) // in the bubble
		l = withAudit(t, cfg)
	})
}

func performOld(s *apitest.Site, values []string) {
	id, err := strconv.ParseUint(values[1], 10, 64)
	if err != nil {
		s.Fatal(err)
	}
	values = append(values, "", "")
	name := values[2]
	count, _ := strconv.ParseInt(values[3], 10, 64)
	commands := map[string]fsm.Command{
		"open":         fsm.OpenSession{Session: id, TTLMS: 3_600_000},
		"acquire":      fsm.Acquire{Session: id, Name: name, Count: count, TTLMS: fsm.KeepTTL},
		"acquire-once": fsm.AcquireOnce{Session: id, Name: name, Count: count, TTLMS: 3_600_000, WaitMS: 3_600_000},
		"acquire-all":  fsm.AcquireMany{Session: id, Wants: []fsm.Want{{Semaphore: name, Count: 1}, {Semaphore: values[3], Count: 1}}, Mode: fsm.All},
		"list-add":     fsm.ListAdd{Session: id, Name: name, Count: count},
		"release":      fsm.Release{Session: id, Name: name},
	}
	reply, err := s.Node.Do(s.Context(), calls.Call{Command: commands[values[0]]})
	if err != nil || reply.Code != fsm.OK && reply.Code != fsm.Waiting {
		s.Fatalf("%v: %v, %v", values, reply.Code, err)
	}
}
