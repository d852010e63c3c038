package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client/cells"
)

// pages reads a list through the proxy, page by page.
func (s *site) pages(path, list, key string, limit int) (keys []string) {
	s.Helper()
	cursor := ""
	for range 100 {
		var page struct{ Next *string }
		a := s.ask(fmt.Sprintf("GET %s&limit=%d%s", path, limit, cursor), "").is(200)
		members := map[string]json.RawMessage{}
		var found []map[string]any
		for _, into := range []any{&page, &members} {
			if err := json.Unmarshal([]byte(a.body), into); err != nil {
				s.Fatal(err)
			}
		}
		if err := json.Unmarshal(members[list], &found); err != nil || len(found) > limit {
			s.Fatalf("%s: %v", a.body, err)
		}
		for _, m := range found {
			keys = append(keys, fmt.Sprint(m[key]))
		}
		if page.Next == nil {
			return keys
		}
		cursor = "&cursor=" + url.QueryEscape(*page.Next)
	}
	s.Fatalf("%s has no end", path)
	return nil
}

// TestListsOfAllCells: pages of any size have each name and each session once, in order. A name is left out if the cell
// that has it is not its cell in the file.
func TestListsOfAllCells(t *testing.T) {
	s := newSite(t)
	s.ask("GET /v1/semaphores", `{"a":"body"}`).is(200, "semaphores")
	names := []string{"a", "db", "e", "eu", "eu/1", "eu/2", "eu/paris/1", "eu/paris/2", "eu/q", "f", "us/1", "us/2", "z"}
	for _, name := range names {
		s.ask("PUT /v1/semaphores/"+url.PathEscape(name), `{"permits":1}`).is(201)
	}
	for _, left := range []string{"eu/paris/1", "b", "eu/paris/3", "eu/paris/4", "eu/paris/5"} { // as after a move
		s.askAt(s.cells[2].URL, "PUT /v1/semaphores/"+url.PathEscape(left), `{"permits":1}`).is(201)
	}
	var sessions []string
	for range 3 {
		for number := range 3 {
			sessions = append(sessions, s.ask(fmt.Sprintf("POST /cells/%d/v1/sessions", number+1), `{"ttl":"1h"}`).is(201).member("session"))
		}
	}
	slices.Sort(sessions)
	for _, limit := range []int{1, 2, 3, 5, 1000} {
		if got := s.pages("/v1/semaphores?prefix=", "semaphores", "name", limit); limit < 1000 && !slices.Equal(got, names) {
			t.Errorf("pages of %d: %q", limit, got)
		}
		got := s.pages("/v1/sessions?consistency=linearizable", "sessions", "session", limit)
		if !slices.IsSortedFunc(got, func(a, b string) int { return len(a)*1000 + strings.Compare(a, b) - len(b)*1000 }) || len(got) != 9 {
			t.Errorf("sessions in pages of %d: %q", limit, got)
		}
		if slices.Sort(got); !slices.Equal(got, sessions) {
			t.Errorf("sessions in pages of %d: %q, want %q", limit, got, sessions)
		}
	}
	if got := s.pages("/v1/semaphores?prefix=eu/", "semaphores", "name", 2); !slices.Equal(got, names[4:9]) {
		t.Errorf("below eu/: %q", got)
	}
	s.ask("GET /v1/semaphores?prefix=e&limit=0", "").is(400, "limit")
	s.ask("GET /v1/semaphores?min_index=3", "").is(409, "other-cell")
	if a := s.ask("HEAD /v1/semaphores", ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
}

// TestBatchesAreSplit: the result of each operation is in its place. Each cell gets only its operations.
func TestBatchesAreSplit(t *testing.T) {
	s := newSite(t)
	two := s.ask("POST /cells/2/v1/sessions", `{"ttl":"1h"}`).is(201).member("session")
	s.ask("GET /livez", "").cameTo(2)
	a := s.ask("POST /v1/batch", `{"operations":[
		{"op":"put","semaphore":"db","permits":7},
		{"op":"put","semaphore":"eu/db","permits":3},
		{"op":"acquire","session":"`+two+`","semaphore":"eu/db"},
		{"op":"acquire","session":"`+two+`","semaphore":"us/db"},
		{"op":"acquire-many","session":"`+two+`","mode":"any","semaphores":[{"name":"eu/db"},{"name":"us/db"}]},
		{"op":"nonsense"},
		{"op":"down","semaphore":"us/gone"},
		{"op":"set","semaphore":"eu/db","value":9},
		{"op":"open","ttl":1000},
		{"op":"raise-tokens","above":1},
		{"op":"item-put","item":"us/i","value":"v"}]}`).is(200).cameTo(1, 2, 3)
	want := []string{"201 7 db", "201 3 eu/db", "200", "409 other-cell", "409 other-cell", "400 invalid-request", "404 unknown-semaphore", "200 9", "201",
		"409 other-cell", "201 us/i"}
	if got := a.results(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), a.body)
	}
	a = s.ask("POST /cells/2/v1/batch", `{"operations":[
		{"op":"acquire","session":"`+two+`","semaphore":"us/db"},
		{"op":"put","semaphore":"us/db","permits":1},
		{"op":"release","session":"`+two+`","semaphore":"us/db"},
		{"op":"raise-tokens","above":1},
		{"op":"up","semaphore":"us/db"}]}`).is(200).cameTo(2)
	if got, want := a.results(), []string{"409 other-cell", "201 1 us/db", "204", "200", "409 other-cell"}; !slices.Equal(got, want) {
		t.Errorf("chosen: %q, want %q: %s", got, want, a.body)
	}
	s.ask("POST /v1/batch", `{"operations":[{"op":"up","semaphore":"us/gone"},{"op":"up","semaphore":"us/gone"}]}`).is(200, "unknown-semaphore").cameTo(3)
	s.ask("POST /v1/batch", `{"operations":[]}`).is(200).cameTo(1)
	s.ask("POST /cells/3/v1/batch", `{"operations":[]}`).is(200).cameTo(3)
	s.ask("POST /v1/batch", `{"operations":[{"op":"up","semaphore":"us/a"}],"more":1}`).is(400, "more").cameTo(1)
	s.cells[3].Listener.Close()
	s.p.transport.(*http.Transport).CloseIdleConnections()
	s.ask("POST /v1/batch", `{"operations":[{"op":"up","semaphore":"db"},{"op":"up","semaphore":"us/a"}]}`).
		is(200, `{"value":8}`, `"code":"not-applied"`, `"status":503`)
}

// results shows the status of each operation of a batch, and a few members.
func (a *answer) results() (got []string) {
	a.Helper()
	var body struct {
		Results []struct {
			Status int
			Body   map[string]any
		}
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		a.Fatal(err)
	}
	for _, r := range body.Results {
		text := fmt.Sprint(r.Status)
		for _, member := range []string{"code", "permits", "token", "value", "name"} {
			if v := r.Body[member]; v != nil && member != "token" {
				text += fmt.Sprintf(" %v", v)
			}
		}
		got = append(got, text)
	}
	return got
}

// eventsFrom opens a stream, and returns a function that reads the next event of a semaphore: its text and its id.
func (s *site) eventsFrom(query string) (next func() (event, id string), end func()) {
	s.Helper()
	response, err := http.DefaultClient.Do(s.request(s.proxy.URL, "GET /v1/events?"+query, ""))
	if err != nil {
		s.Fatal(err)
	}
	if response.StatusCode != 200 {
		s.Fatalf("events: %s", response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	name := regexp.MustCompile(`"semaphore":"([^"]*)"`)
	return func() (event, id string) {
		s.Helper()
		kind := ""
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "id":
				id = value
			case "event":
				kind = value
			case "data":
				if found := name.FindStringSubmatch(value); found != nil {
					return kind + " " + found[1], id
				}
			}
		}
		s.Fatalf("the stream has ended: %v", lines.Err())
		return "", ""
	}, func() { response.Body.Close() }
}

// TestEventsOfAllCells: one stream has the events of all cells, each once, even when it resumes after an id. Events of a
// name are left out if they come from a cell that is not the name's cell.
func TestEventsOfAllCells(t *testing.T) {
	s := newSite(t)
	put := func(name string) { s.ask("PUT /v1/semaphores/"+url.PathEscape(name), `{"permits":1}`).is(201) }
	next, end := s.eventsFrom("since=0")
	seen := map[string]int{}
	id := ""
	read := func(count int) {
		t.Helper()
		for range count {
			event, at := next()
			seen[event]++
			id = at
		}
	}
	put("db")
	put("eu/1")
	put("us/1")
	s.askAt(s.cells[2].URL, "PUT /v1/semaphores/us%2Fleft", `{"permits":1}`).is(201)
	put("eu/2")
	read(4)
	end()
	put("us/2")
	put("a")
	next, end = s.eventsFrom("since=" + url.QueryEscape(id))
	put("eu/3")
	read(3)
	end()
	want := map[string]int{"created db": 1, "created eu/1": 1, "created us/1": 1, "created eu/2": 1, "created us/2": 1, "created a": 1, "created eu/3": 1}
	if !maps.Equal(seen, want) {
		t.Errorf("saw %v", seen)
	}
	if !regexp.MustCompile(`^1:\d+(\.\d+)?,2:\d+(\.\d+)?,3:\d+(\.\d+)?$`).MatchString(id) {
		t.Errorf("the id is %q", id)
	}
	s.ask("GET /v1/events?since=7.1", "").is(400, "1:907.2")
	s.ask("GET /v1/events?since=1:7,2:7", "").is(410, "history-gone")
	s.ask("GET /v1/events?since=1:999999,2:1,3:1", "").is(410, "history-gone")
	s.ask("GET /v1/events?prefix=%00", "").is(400, "prefix")
}

// TestEventsEndWithTheirCells: when the file is read again, streams end. Their clients connect again, and so get the
// events of the cells that have the names now.
func TestEventsEndWithTheirCells(t *testing.T) {
	s := newSite(t)
	var ended []func() error
	for _, query := range []string{"", "?name=eu/a", "?prefix=us/"} {
		response, err := (&http.Client{Timeout: 10 * time.Second}).Do(s.request(s.proxy.URL, "GET /v1/events"+query, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		ended = append(ended, func() error { _, err := io.Copy(io.Discard, response.Body); return err })
	}
	m, err := cells.New(s.list)
	if err == nil {
		err = s.p.SetCells(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, wait := range ended {
		if err := wait(); errors.Is(err, context.DeadlineExceeded) {
			t.Error("a stream goes on")
		}
	}
}

// TestMergedRepliesAreAsOthers: merged replies are as other replies. Their headers let a page of another origin read
// them if all cells allow this origin. The cells see the client's address only in the header that the proxy sets.
func TestMergedRepliesAreAsOthers(t *testing.T) {
	s := newSite(t)
	batch := `{"operations":[{"op":"put","semaphore":"db","permits":1},{"op":"put","semaphore":"eu/db","permits":1},{"op":"put","semaphore":"us/db","permits":1}]}`
	for _, line := range []string{"GET /v1/semaphores/db", "GET /v1/semaphores", "GET /v1/semaphores?limit=0", "GET /v1/sessions", "HEAD /v1/events", "POST /v1/batch"} {
		body := ""
		if strings.HasPrefix(line, "POST") {
			body = batch
		}
		a := s.ask(line, body, "Origin: https://app.example", "X-Forwarded-For: 192.0.2.7", "Forwarded: for=192.0.2.8")
		for name, want := range map[string]string{"Access-Control-Allow-Origin": "https://app.example", "Vary": "Origin"} {
			if got := a.header.Get(name); got != want || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "X-Signalbox-Index") {
				t.Errorf("%s: %s is %q, want %q: %v", line, name, got, want, a.header)
			}
		}
		for number, c := range s.cells {
			requests, last := c.take(), c.last
			if len(requests) > 0 && (last.Get("X-Forwarded-For") != "192.0.2.7, 127.0.0.1" || last.Get("Forwarded") != "" || last.Get("X-Forwarded-Proto") != "http") {
				t.Errorf("%s at cell %d: %v", line, number, last)
			}
		}
		_, path, _ := strings.Cut(line, " ")
		if a := s.ask("OPTIONS "+path, "", "Origin: https://app.example", "Access-Control-Request-Method: GET").is(204); a.header.Get("Access-Control-Allow-Methods") == "" {
			t.Errorf("OPTIONS %s: %v", path, a.header)
		}
	}
	if a := s.ask("GET /v1/semaphores", "", "Origin: https://1.example").is(200); a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a page reads the names of cells that don't list its origin: %v", a.header)
	}
}
