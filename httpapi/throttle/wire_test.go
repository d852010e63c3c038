package throttle

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/apitest"
)

// onTheWire sends requests one after another on one connection. It returns the replies as they were on the wire, without
// the headers that all replies have.
func onTheWire(t *testing.T, address string, requests ...string) []string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var replies []string
	reader := bufio.NewReader(conn)
	for _, request := range requests {
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		method, _, _ := strings.Cut(request, " ")
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		kinds, present := response.Header["Content-Type"]
		replies = append(replies, fmt.Sprintf("%d %v %q %d %q %v", response.StatusCode, present, kinds, response.ContentLength, body, response.Close))
	}
	return replies
}

// On the wire: a domain error has no Content-Type, and net/http does not guess one. The connection stays open. A reply
// to HEAD has a length and no body.
func TestThrottleOnTheWire(t *testing.T) {
	_, _, address := apitest.Serve(t, exactly)
	const head = " HTTP/1.1\r\nHost: n1\r\n"
	got := onTheWire(t, address,
		"PUT /peers/7/A"+head+"Content-Type: application/json\r\nContent-Length: 1\r\n\r\n1",
		"GET /peers/7/is_acquired"+head+"\r\n",
		"DELETE /peers/7"+head+"Content-Length: 0\r\n\r\n",
		"PUT /peers/7"+head+"\r\n",
		"HEAD /peers/"+head+"\r\n",
		"GET /peers/"+head+"\r\n",
	)
	want := []string{
		`400 false [] 17 "Unknown semaphore" false`,
		`400 false [] 12 "Unknown peer" false`,
		`200 true ["application/json"] 16 "\"Peer not found\"" false`,
		"415 true [\"text/plain; charset=utf-8\"] 54 \"Expected request with `Content-Type: application/json`\" false",
		`200 true ["application/json"] 2 "" false`,
		`200 true ["application/json"] 2 "[]" false`,
	}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Errorf("%d:\ngot  %s\nwant %s", i, got[i], want[i])
		}
	}
}

func TestThrottleIcon(t *testing.T) {
	s, _ := onThrottle(t)
	got := s.Ask("GET /favicon.ico", "")
	icon := []byte(got.Body)
	if got.Status != 200 || got.ContentType != "image/x-icon" || len(icon) != 1150 {
		t.Fatalf("%d %s, %d bytes", got.Status, got.ContentType, len(icon))
	}
	le := binary.LittleEndian
	size, offset := le.Uint32(icon[14:]), le.Uint32(icon[18:])
	if !bytes.Equal(icon[:6], []byte{0, 0, 1, 0, 1, 0}) || int(offset+size) != len(icon) || icon[6] != 16 || icon[7] != 16 || le.Uint32(icon[offset:]) != 40 {
		t.Errorf("no icon file: % x", icon[:62])
	}
	pixel := func(x, y int) uint32 { return le.Uint32(icon[62+4*(16*(15-y)+x):]) }
	if pixel(1, 2) != 0xFFC8102E || pixel(6, 2) != 0xFFFFFFFF || pixel(12, 10) != 0xFF333333 || pixel(0, 0) != 0 {
		t.Errorf("other pixels: %x %x %x %x", pixel(1, 2), pixel(6, 2), pixel(12, 10), pixel(0, 0))
	}
}

func TestThrottleRootIsNoPage(t *testing.T) {
	s, _ := onThrottle(t)
	s.Is(s.Ask("GET /?x=1", "", "Accept: application/json"), "200 text Hello from Signalbox!")
}

// The four gauges are beside our metrics, and show declared semaphores only.
func TestThrottleGauges(t *testing.T) {
	declared := speaks(Config{Declared: func() []string { return []string{"A", "b \"c\"", "not made"} }})
	inEachThrottle(t, func(s *apitest.Site) {
		s.Semaphore("A", "5", "0")
		s.Semaphore(`b "c"`, "1", "1")
		s.Semaphore("other", "9", "0")
		for _, id := range []string{"1", "2", "3"} {
			s.Peer(id, "1h")
		}
		s.Is(s.Ask("PUT /peers/1/A", "3"), "200 json 1")
		s.Is(s.Ask("PUT /peers/2/A", "4"), "202 json 2")
		s.Advance(1500 * time.Millisecond)
		s.Is(s.Ask("PUT /peers/3/A", "2"), "202 json 3")
		s.Advance(1400 * time.Millisecond)
		s.CaughtUp(s.Do(fsm.Up{Name: `b "c"`, Count: 2}))
		page := s.Ask("GET /metrics", "").Body
		var got []string
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "throttle_") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		want := []string{
			`throttle_acquired{semaphore="A"} 3`, `throttle_acquired{semaphore="b \"c\""} 0`,
			`throttle_longest_pending_sec{semaphore="A"} 2`, `throttle_longest_pending_sec{semaphore="b \"c\""} 0`,
			`throttle_max{semaphore="A"} 5`, `throttle_max{semaphore="b \"c\""} 3`,
			`throttle_pending{semaphore="A"} 6`, `throttle_pending{semaphore="b \"c\""} 0`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			s.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if !strings.Contains(page, "signalbox_http_requests_total") {
			s.Error("our own figures are missing")
		}
	}, declared)
}

// FuzzThrottleRequest: every request gets a reply with one of the dialect's statuses,
// and a refused request has no effect.
func FuzzThrottleRequest(f *testing.F) {
	for _, seed := range [][3]string{
		{"PUT", "/peers/1/A?block_for=0s&expires_in=1h", "1"}, {"PUT", "/peers/1", `{"expires_in":"1m"}`}, {"POST", "/new_peer", `{"expires_in":"1.5h"}`},
		{"DELETE", "/peers/1/%2F%26", ""}, {"GET", "/peers/1/is_acquired", ""}, {"GET", "/remainder?semaphore=%zz+&%", ""},
		{"POST", "/restore", `{"expires_in":"0","peer_id":3,"acquired":{"A":1}}`}, {"GET", "/peers/", ""}, {"PUT", "/peers/%FF/%", "-"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: n1\r\n\r\n")))
		if err != nil || strings.Contains(target, "block_for") {
			return // it would block for as long as it says
		}
		s, node := onThrottle(t)
		s.Semaphore("A", "1", "0")
		s.Semaphore("/&", "2", "")
		s.Peer("1", "1h")
		s.Is(s.Ask("PUT /peers/1/A", "1"), "200 json 1")
		before := node.State(t)
		r.Body = io.NopCloser(strings.NewReader(body))
		r.ContentLength = int64(len(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		switch w.Code {
		case 200, 201, 202, 204: // done
		case 400, 404, 405, 409, 413, 415, 422, 501, 503:
			if w.Code == 503 && strings.HasPrefix(target, "/peers") {
				t.Fatalf("%s %q %q: %d %s", method, target, body, w.Code, w.Body)
			}
			if after := node.State(t); after != before && !strings.Contains(target, "expires_in") {
				t.Fatalf("%s %q %q: %d, and changed\n%s\n%s", method, target, body, w.Code, before, after)
			}
		default:
			t.Fatalf("%s %q %q: %d %s", method, target, body, w.Code, w.Body)
		}
	})
}
