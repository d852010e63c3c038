package consulclient

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// recipeCases are the recipes of Consul's guides, by plain requests, as a shell script makes them.
var recipeCases = []checklistCase{
	{"recipe of a semaphore", recipeOfASemaphore},
	{"recipe of an election", recipeOfAnElection},
}

// curl sends a request and expects a reply; "" for any.
func (s *site) curl(method, path, body string, status int, want string) string {
	s.Helper()
	got, text, err := s.cluster.ask(s.node, method, path, body)
	s.ok(err)
	if got != status || want != "" && text != want {
		s.Fatalf("%s %s: %d %s, want %d %s", method, path, got, text, status, want)
	}
	return text
}

// path returns the route of a key.
func (s *site) path(key string) string {
	return "/v1/kv/" + strings.ReplaceAll(s.prefix, " ", "%20") + key
}

func (s *site) newSession(body string) string {
	s.Helper()
	var made struct{ ID string }
	s.ok(json.Unmarshal([]byte(s.curl(http.MethodPut, "/v1/session/create", body, http.StatusOK, "")), &made))
	s.Cleanup(func() { _, _, _ = s.cluster.ask(s.node, http.MethodPut, "/v1/session/destroy/"+made.ID, "") })
	return made.ID
}

// shown is a key as a script reads it.
type shown struct {
	Key, Session           string
	Value                  []byte
	ModifyIndex, LockIndex uint64
}

func (s *site) list(query string) (keys []shown) {
	s.Helper()
	s.ok(json.Unmarshal([]byte(s.curl(http.MethodGet, s.path(query), "", http.StatusOK, "")), &keys))
	return keys
}

// recipeOfASemaphore: contender keys, and a key .lock that names limit and holders, changed by check-and-set.
func recipeOfASemaphore(s *site) {
	first, second := s.newSession(`{"Name":"db-semaphore","TTL":"10s","Behavior":"delete"}`), s.newSession(`{"Name":"db-semaphore"}`)
	for _, session := range []string{first, second} {
		s.curl(http.MethodPut, s.path(session)+"?acquire="+session, "web-1", http.StatusOK, "true")
	}
	holders := func(sessions ...string) string {
		text, err := json.Marshal(map[string]any{"Limit": 2, "Holders": sessions})
		s.ok(err)
		return string(text)
	}
	s.curl(http.MethodPut, s.path(".lock?cas=0"), holders(first), http.StatusOK, "true")
	s.curl(http.MethodPut, s.path(".lock?cas=0"), holders(second), http.StatusOK, "false")
	keys := s.list("?recurse")
	s.check(len(keys) == 3 && strings.HasSuffix(keys[0].Key, "/.lock") && string(keys[0].Value) == holders(first) && keys[0].Session == "" &&
		keys[1].Session+keys[2].Session == min(first, second)+max(first, second), "%+v", keys)
	s.curl(http.MethodPut, s.path(fmt.Sprintf(".lock?cas=%d", keys[0].ModifyIndex)), holders(first, second), http.StatusOK, "true")
	s.curl(http.MethodPut, "/v1/session/destroy/"+first, "", http.StatusOK, "true") // deletes its contender key
	keys = s.list("?recurse")
	s.check(len(keys) == 2 && keys[1].Session == second && string(keys[0].Value) == holders(first, second), "%+v", keys)
	s.curl(http.MethodPut, s.path(fmt.Sprintf(".lock?cas=%d", keys[0].ModifyIndex)), holders(second), http.StatusOK, "true")
	s.curl(http.MethodDelete, s.path("?recurse"), "", http.StatusOK, "true")
	s.curl(http.MethodGet, s.path("?recurse"), "", http.StatusNotFound, "")
}

// recipeOfAnElection: a key that the leader's session holds, whose value says who leads; a follower waits
// for a change of it, and becomes the leader after the lock delay.
func recipeOfAnElection(s *site) {
	first, second := s.newSession(`{"LockDelay":"1s"}`), s.newSession(`{"LockDelay":"1s"}`)
	s.curl(http.MethodPut, s.path("leader?acquire=")+first, "node-1", http.StatusOK, "true")
	s.curl(http.MethodPut, s.path("leader?acquire=")+second, "node-2", http.StatusOK, "false")
	leads := s.list("leader")[0]
	s.check(string(leads.Value) == "node-1" && leads.Session == first && leads.LockIndex == 1, "%+v", leads)
	s.curl(http.MethodGet, s.path("leader?raw"), "", http.StatusOK, "node-1")
	var destroyed time.Time
	later := s.later(func() {
		destroyed = time.Now()
		_, _, _ = s.cluster.ask(s.node, http.MethodPut, "/v1/session/destroy/"+first, "")
	})
	freed := s.list(fmt.Sprintf("leader?index=%d&wait=10s", leads.ModifyIndex))[0]
	later()
	s.check(freed.Session == "" && string(freed.Value) == "node-1" && freed.ModifyIndex > leads.ModifyIndex, "%+v", freed)
	eventually(s.T, soon, func() error {
		_, text, err := s.cluster.ask(s.node, http.MethodPut, s.path("leader?acquire=")+second, "node-2")
		if err != nil || text != "true" {
			return fmt.Errorf("%s %w", text, err)
		}
		return nil
	})
	s.check(time.Since(destroyed) > 900*time.Millisecond, "the lock delay was over after %v", time.Since(destroyed))
	s.curl(http.MethodPut, s.path("leader?release=")+second, "", http.StatusOK, "true")
	s.curl(http.MethodPut, s.path("leader?release=")+second, "", http.StatusOK, "false")
}
