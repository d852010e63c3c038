package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
	batches "github.com/signalbox/signalbox/client/batch"
)

// crowd opens sessions that acquire a semaphore, and returns their ids in the order of their requests.
func crowd(t *testing.T, address, name string, sessions int) (ids []string) {
	t.Helper()
	c, err := signalbox.New(signalbox.Config{Addresses: []string{address}})
	must(t, err)
	defer func() { must(t, c.Close(context.Background())) }()
	send := func(operations []batches.Operation) []batches.Result {
		results, err := batches.Send(t.Context(), c, operations...)
		must(t, err)
		for i := range results {
			must(t, results[i].Err())
		}
		return results
	}
	for len(ids) < sessions {
		opens := make([]batches.Operation, min(1000, sessions-len(ids)))
		for i := range opens {
			opens[i] = batches.Operation{Op: "open", TTL: time.Hour}
		}
		var acquires []batches.Operation
		for _, r := range send(opens) {
			var opened struct{ Session string }
			must(t, json.Unmarshal(r.Body, &opened))
			ids = append(ids, opened.Session)
			acquires = append(acquires, batches.Operation{Op: "acquire", Session: opened.Session, Semaphore: name})
		}
		send(acquires)
	}
	return ids
}

// TestLongLists: a semaphore has more holders and waiters than one request reads. show and why print each of them once
// and in order; tables have the first of them, and the number of the others.
func TestLongLists(t *testing.T) {
	const holders, waiters = 1050, 2025
	s, end := startStage(t, "--ephemeral")
	address := s.addresses
	verb := func(arguments ...string) string {
		t.Helper()
		o := command(t, append(arguments, "--timeout", "20s"), "SIGNALBOX_ADDR", address)
		if o.status != 0 {
			t.Fatalf("%v: %+v", arguments, o)
		}
		return o.stdout
	}
	verb("create", "db", "--permits", fmt.Sprint(holders))
	ids := crowd(t, address, "db", holders+waiters)

	for _, c := range []struct {
		arguments        string
		holders, waiters int
	}{
		{"show db -o json", holders, waiters},
		{"why db -o json", holders, waiters},
		{"show db -o json --limit 3", 3, 3},
		{"show db -o json --limit 1001", 1001, 1001},
		{"why db -o json --limit 0", holders, waiters},
	} {
		var s signalbox.Semaphore
		must(t, json.Unmarshal([]byte(verb(strings.Fields(c.arguments)...)), &s))
		if len(s.Holders) != c.holders || len(s.Waiters) != c.waiters || s.HolderCount != holders || s.WaiterCount != waiters {
			t.Errorf("%s: %d holders and %d waiters, want %d and %d", c.arguments, len(s.Holders), len(s.Waiters), c.holders, c.waiters)
			continue
		}
		for i, h := range s.Holders {
			if h.Session != ids[i] {
				t.Fatalf("%s: holder %d is %s, want %s", c.arguments, i, h.Session, ids[i])
			}
		}
		for i, w := range s.Waiters {
			if w.Session != ids[holders+i] || w.Position != int64(i+1) {
				t.Fatalf("%s: waiter %d is %s at place %d, want %s", c.arguments, i, w.Session, w.Position, ids[holders+i])
			}
		}
	}
	for arguments, want := range map[string]struct {
		lines int
		texts []string
	}{
		"show db":           {205, []string{"… and 950 more holders: --limit 0 shows all\n", "… and 1925 more waiters: --limit 0 shows all\n"}},
		"show db --limit 2": {9, []string{"… and 1048 more holders", "… and 2023 more waiters"}},
		"show db --limit 0": {3 + holders + waiters, []string{ids[holders-1] + " ", ids[holders+waiters-1] + " "}},
		"why db":            {115, []string{"100. session " + ids[holders+99], "… and 1925 more waiters: --limit 0 shows all\n", "… and 1040 more holders: \"signalbox show db\" shows them\n"}},
		"why db --limit 0":  {14 + waiters, []string{fmt.Sprintf("%d. session %s", waiters, ids[holders+waiters-1])}},
	} {
		shown := verb(strings.Fields(arguments)...)
		if lines := strings.Count(shown, "\n"); lines != want.lines {
			t.Errorf("%s: %d lines, want %d", arguments, lines, want.lines)
		}
		for _, text := range want.texts {
			if !strings.Contains(shown, text) {
				t.Errorf("%s does not say %q", arguments, text)
			}
		}
	}
	command(t, []string{"show", "db", "--limit", "-1"}, "SIGNALBOX_ADDR", address).refused(t, "--limit", "-1", "0 shows all")
	end()
}
