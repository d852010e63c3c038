package httpapi_test

import (
	"strconv"
	"testing"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/test/apitest"
)

// TestScripts are tables of the contract, of a node without tokens.
func TestScripts(t *testing.T) { apitest.RunScripts(t, "testdata") }

// TestAccessScripts are those of a node with tokens. "old COMMAND SESSION NAME COUNT" is a command from
// before it had them.
func TestAccessScripts(t *testing.T) {
	clients := append(append([]client{{"boss", access.Admin, ""}}, twoTeams...), accessClients[:3]...)
	clients = append(clients, accessClients[4:]...)
	apitest.RunScriptsWith(t, apitest.Words{"old": performOld}, "testdata/access", func(cfg *apitest.Config) { withTokens(t, clients...)(cfg) }) // in the bubble
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
	reply, err := s.Node.Do(s.Context(), cluster.Call{Command: commands[values[0]]})
	if err != nil || reply.Code != fsm.OK && reply.Code != fsm.Waiting {
		s.Fatalf("%v: %v, %v", values, reply.Code, err)
	}
}
