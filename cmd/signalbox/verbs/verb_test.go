package verbs

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/user"
	"regexp"
	"strings"
	"testing"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// serving makes a call of a verb on a cluster that replies to GET with a document and to DELETE with success. deleted
// returns the queries of the DELETEs.
func serving(t *testing.T, document string, arguments ...string) (c *call, deleted func() string) {
	t.Helper()
	queries := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			queries <- r.URL.RawQuery
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, document)
	}))
	t.Cleanup(server.Close)
	client, err := signalbox.New(signalbox.Config{Addresses: []string{server.URL}})
	must(t, err)
	output := &cli.Output{W: io.Discard, Format: cli.Table}
	return &call{Context: t.Context(), Output: output, client: client, operator: operator.New(client), arguments: arguments}, func() string { return <-queries }
}

// TestDeletesWhatItAskedAbout: rm deletes the semaphore that its question showed, and no later semaphore of the same
// name.
func TestDeletesWhatItAskedAbout(t *testing.T) {
	c, deleted := serving(t, `{"name":"db","permits":1,"epoch":5}`, "db")
	v := rmVerb()
	must(t, v.run(c))
	if got := deleted(); got != "" {
		t.Errorf("without a question: %q", got)
	}
	if _, err := v.asks(c); err != nil {
		t.Fatal(err)
	}
	must(t, v.run(c))
	if got := deleted(); got != "epoch=5" {
		t.Errorf("after the question: %q", got)
	}
}

// TestAsksWhoHolds: before rm deletes an item, its question says whether a session holds the item, even if the caller
// may not know the session's id.
func TestAsksWhoHolds(t *testing.T) {
	for session, want := range map[string]string{
		`null`: "No session holds it.",
		`"77"`: "It is held by session 77, whose process may go on for a while.",
		`""`:   "A session that you may not see holds it, and its process may go on for a while.",
	} {
		c, _ := serving(t, `{"name":"db","value":"text","version":5,"session":`+session+`}`, "db")
		if question, err := itemRm().asks(c); err != nil || question != "Delete the item db of 4 bytes. "+want {
			t.Errorf("%s: %q, %v", session, question, err)
		}
	}
}

// TestAsksBeforePermitsAreTaken: free asks about every lost hold; release asks only about sessions of another user.
func TestAsksBeforePermitsAreTaken(t *testing.T) {
	me, err := user.Current()
	must(t, err)
	for _, k := range []struct {
		asks                      func(*call) (string, error)
		document, arguments, want string
	}{
		{freeVerb().asks, `{"lost":[{"token":6,"count":2,"session":"7","metadata":{"host":"web7"}}]}`, "db 6",
			"Bring back 2 of db, from web7 (session 7), which lost it. The holder may still be running: the token 6 fences it."},
		{releaseVerb().asks, `{"session":"7","leases":[{"semaphore":"db","count":2}],"metadata":{"user":"nobody else"}}`, "7",
			`Release db ×2 of another user, user=nobody else (session 7). The client may still be running: the tokens fence it.`},
		{releaseVerb().asks, `{"session":"7","metadata":{"user":"nobody else"}}`, "7 db",
			`Release db of another user, user=nobody else (session 7). The client may still be running: the tokens fence it.`},
		{releaseVerb().asks, `{"session":"7","metadata":{"user":"` + me.Username + `","host":"elsewhere"}}`, "7 db", ""},
		{releaseVerb().asks, `{"session":"7","metadata":{}}`, "7", ""},
	} {
		c, _ := serving(t, k.document, strings.Fields(k.arguments)...)
		if question, err := k.asks(c); err != nil || question != k.want {
			t.Errorf("%s: %q, %v", k.document, question, err)
		}
	}
}

// TestShowsHowALeaseEnds: a lease that ended by max_hold looks different from other revoked leases.
func TestShowsHowALeaseEnds(t *testing.T) {
	c, _ := serving(t, "{}")
	var shown strings.Builder
	c.W = &shown
	must(t, printHolders(c, &signalbox.Semaphore{Holders: []signalbox.Holder{{Revoked: true, Reason: "maintenance"}, {Revoked: true, Reason: "max-hold"}, {Spent: true}}}, ""))
	if text := shown.String(); !regexp.MustCompile(`(?s) revoked\n.* max-hold\n.* spent\n$`).MatchString(text) {
		t.Error(text)
	}
}

// TestWhyRevokesALivingLease: the advice leaves out leases that are revoked already.
func TestWhyRevokesALivingLease(t *testing.T) {
	for holders, want := range map[string]string{
		`"held":1,"holders":[{"session":"7","revoked":true},{"session":"8","count":1,"group":"a b"}]`: `signalbox revoke db 8 --group 'a b'`,
		`"held":0,"holders":[{"session":"7","revoked":true}]`:                                         "No lease holds it",
		`"held":1,"lost_count":1,"holders":[{"session":"7","revoked":true}]`:                          "signalbox revoke db SESSION\n",
	} {
		c, _ := serving(t, `{"name":"db","permits":1,`+holders+`,"waiters":[{"session":"9","count":1,"position":1,"reason":"It needs 1, 0 available."}]}`, "db")
		var shown strings.Builder
		c.W = &shown
		must(t, whyVerb().run(c))
		if text := shown.String(); !strings.Contains(text, want) || strings.Contains(text, "revoke db 7") {
			t.Errorf("%s: %s", holders, text)
		}
	}
}

// TestReleasesWhatItRead: release names the token of the lease that it has read, so it does not release a later lease.
func TestReleasesWhatItRead(t *testing.T) {
	const session = `{"session":"77","leases":[{"semaphore":"db","count":1,"token":9}],"waiting":[{"semaphores":{"web":1},"mode":"all"}]}`
	for name, want := range map[string]string{"db": "token=9", "web": ""} {
		c, deleted := serving(t, session, "77", name)
		must(t, releaseVerb().run(c))
		if got := deleted(); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestWhyOfWaitList: why shows that a session waits if it waits by its wait list.
func TestWhyOfWaitList(t *testing.T) {
	const session = `{"session":"77","leases":[],"waiting":[],"waiting_count":0,"waitlist":[
		{"name":"jobs","epoch":3,"wanted":2,"granted":0,"position":4,"waiting_ms":70},{"name":"done","wanted":1,"granted":1,"position":0}]}`
	s := new(operator.Session)
	must(t, json.Unmarshal([]byte(session), s))
	var shown strings.Builder
	c, _ := serving(t, `{"name":"jobs","permits":1,"holders":[{"session":"88","count":1,"token":5}]}`, "77")
	c.W = &shown
	must(t, whySession(c, s, tableRows))
	for text, want := range map[string]bool{"Its wait list wants 2 of jobs, at place 4, for 70ms": true, "88 ": true, "done": false, "waits for no": false} {
		if strings.Contains(shown.String(), text) != want {
			t.Errorf("%q:\n%s", text, shown.String())
		}
	}
	s.WaitList, shown = nil, strings.Builder{}
	if err := whySession(c, s, tableRows); err != nil || !strings.Contains(shown.String(), "It waits for no semaphore.") {
		t.Errorf("%v:\n%s", err, shown.String())
	}
}

// TestWhyOfFullSession: for a session with many leases, list entries and requests, why prints the first members of each
// list and the number of the others.
func TestWhyOfFullSession(t *testing.T) {
	s := &operator.Session{ID: "77", WaitingCount: 6}
	for i := range 24 {
		s.Leases = append(s.Leases, operator.Lease{Semaphore: fmt.Sprint("held-", i), Count: 1})
	}
	for i := range 5 {
		s.WaitList = append(s.WaitList, operator.ListEntry{Semaphore: fmt.Sprint("list-", i), Wanted: 1, Position: 1})
		s.Waiting = append(s.Waiting, operator.Wait{Semaphores: map[string]int64{fmt.Sprint("line-", i): 1}, Mode: "all", Position: 2})
	}
	for rows, want := range map[int]string{
		2: "list-0 list-1 … and 3 more on its wait list: line-0 line-1 … and 4 more requests:",
		9: "list-0 list-1 list-2 list-3 list-4 line-0 line-1 line-2 line-3 line-4 … and 1 more requests:",
	} {
		c, _ := serving(t, `{"name":"any","permits":1}`)
		var shown strings.Builder
		c.W = &shown
		must(t, whySession(c, s, rows))
		if !strings.Contains(shown.String(), "held-19 and 4 more; ") || strings.Contains(shown.String(), "held-20") {
			t.Errorf("leases: %s", shown.String())
		}
		if got := strings.Join(regexp.MustCompile(`(list|line)-\d|… and [^:]*:`).FindAllString(shown.String(), -1), " "); got != want {
			t.Errorf("%d of each: %s, want %s", rows, got, want)
		}
	}
	if len(s.Leases) != 24 || s.Leases[20].Semaphore != "held-20" {
		t.Error("the session was changed")
	}
}
