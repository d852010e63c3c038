package calls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// script plays the nodes in a test: it replies to the nth request, or returns the error of its connection.
type script func(r *http.Request, nth int) (*http.Response, error)

// rig is a Caller with scripted nodes, in virtual time.
type rig struct {
	*testing.T
	*Caller

	mu     sync.Mutex
	script script
	sent   []*http.Request
	at     []time.Time
}

// RoundTrip implements http.RoundTripper.
func (b *rig) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	b.sent, b.at = append(b.sent, r), append(b.at, time.Now())
	nth := len(b.sent)
	b.mu.Unlock()
	return b.script(r, nth)
}

// virtually runs a test with this many nodes, called n1, n2 and so on.
func virtually(t *testing.T, nodes int, replies script, test func(b *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &rig{T: t, script: replies}
		cfg := Config{HTTPClient: &http.Client{Transport: b}, Log: slog.New(slog.DiscardHandler), AttemptTimeout: 12 * time.Second,
			LongestWait: 50 * time.Second, GiveUpAfter: time.Minute, Refused: func(r *Refusal) error { return users{r} }}
		for i := range nodes {
			cfg.Addresses = append(cfg.Addresses, fmt.Sprintf("n%d", i+1))
		}
		var err error
		if b.Caller, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		test(b)
	})
}

// users is the error that users get for a refusal.
type users struct{ of *Refusal }

func (u users) Error() string        { return fmt.Sprintf("%d %s%s", u.of.Status, u.of.Code, u.of.Text) }
func (u users) Is(target error) bool { return target == u.of.Code }

// post is a change; get is a read.
func (b *rig) post(limit time.Duration) error { return b.send(limit, Call{Method: "POST", Key: "k"}) }
func (b *rig) get(limit time.Duration) error  { return b.send(limit, Call{Method: "GET"}) }

// send makes a call, within a limit that is not 0.
func (b *rig) send(limit time.Duration, k Call) error {
	ctx := context.Background()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	k.Path = []string{"v1", "thing"}
	_, err := b.Do(ctx, k)
	return err
}

// asked lists the nodes that were asked.
func (b *rig) asked() string {
	var hosts []string
	for _, r := range b.sent {
		hosts = append(hosts, r.URL.Host)
	}
	return strings.Join(hosts, " ")
}

// took fails the test unless the time since began is between shortest and longest.
func (b *rig) took(began time.Time, shortest, longest time.Duration) {
	b.Helper()
	if d := time.Since(began); d < shortest || d > longest {
		b.Errorf("took %v, wanted %v … %v", d, shortest, longest)
	}
}

// replying makes a reply of a node; a body that begins with "{" is a problem document.
func replying(status int, body string, header ...string) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	if strings.HasPrefix(body, "{") {
		recorder.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
	}
	for i := 0; i < len(header); i += 2 {
		recorder.Header().Set(header[i], header[i+1])
	}
	recorder.WriteHeader(status)
	recorder.WriteString(body)
	return recorder.Result(), nil
}

// always is a script of one reply.
func always(status int, body string, header ...string) script {
	return func(*http.Request, int) (*http.Response, error) { return replying(status, body, header...) }
}

func unreachable(*http.Request, int) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

func silent(r *http.Request, _ int) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A refusal ends the call at once, or after each node was asked once, or only at the end of the call's time. The outcome
// of a change is then unknown, or the refusal shows that the change had no effect.
func TestRefusalsThatEndACall(t *testing.T) {
	const once, each, on = "n1", "n1 n2 n3", "n1 n2 n3 n1"
	for _, c := range []struct {
		status  int
		body    string
		asked   string // at least, for "on"
		unknown bool
	}{
		{400, `{"code":"invalid-request"}`, once, false},
		{400, `Client sent an HTTP request to an HTTPS server.`, each, false},
		{401, `{"code":"unauthenticated"}`, each, false},
		{401, `<html>`, once, false},
		{403, `{"code":"forbidden"}`, once, false},
		{404, `{"code":"unknown-semaphore"}`, once, false},
		{404, `<html>`, once, false},
		{429, `{"code":"limit-reached","rule":"semaphores"}`, once, false},
		{429, `{"code":"limit-reached","rule":"connections"}`, each, false},
		{429, `{"code":"limit-reached","rule":"watchers"}`, each, false},
		{500, `{"code":"internal"}`, each, true},
		{500, `oops`, each, true},
		{501, `oops`, once, false},
		{408, `slow`, on, true},
		{502, `bad gateway`, on, true},
		{503, `<html>`, on, true},
		{503, `{"code":"no-leader"}`, on, false},
		{503, `{"code":"overloaded"}`, on, false},
		{503, `{"code":"storage-full"}`, on, false},
		{503, `{"code":"states-differ"}`, on, false},
		{504, `{"code":"outcome-unknown"}`, on, true},
	} {
		t.Run(fmt.Sprint(c.status, c.body), func(t *testing.T) {
			virtually(t, 3, always(c.status, c.body), func(b *rig) {
				err := b.post(3 * time.Second)
				var refusal *Refusal
				if !errors.As(err, &refusal) || refusal.Status != c.status || !errors.As(err, new(users)) {
					b.Errorf("the call fails with %v", err)
				}
				if c.asked == on && !strings.HasPrefix(b.asked(), on) || c.asked != on && b.asked() != c.asked {
					b.Errorf("asked %s, wanted %s", b.asked(), c.asked)
				}
				if c.asked == on != errors.Is(err, ErrUnreachable) || errors.Is(err, ErrOutcomeUnknown) != c.unknown {
					b.Errorf("unknown wanted %v: %v", c.unknown, err)
				}
				if err := b.get(3 * time.Second); c.body != `{"code":"outcome-unknown"}` && errors.Is(err, ErrOutcomeUnknown) {
					b.Errorf("a read has no such outcome: %v", err)
				}
			})
		})
	}
}

// If a change may have been carried out, the error says so, unless the state machine has refused its repeat: such a
// refusal is the outcome of the first attempt.
func TestOutcomeAfterALostReply(t *testing.T) {
	for body, unknown := range map[string]bool{
		`{"code":"unavailable"}`: false, `<html>`: true,
	} {
		virtually(t, 2, func(_ *http.Request, nth int) (*http.Response, error) {
			if nth == 1 {
				return nil, errors.New("connection reset")
			}
			return replying(409, body)
		}, func(b *rig) {
			if err := b.post(0); errors.Is(err, ErrOutcomeUnknown) != unknown {
				b.Errorf("after %s: %v", body, err)
			}
			if b.sent[1].Header.Get("Idempotency-Key") != "k" {
				b.Error("the repeat has another key")
			}
		})
	}
}

// If this client or a node refuses the other's certificate, each node is asked once. The error says that the request was
// not carried out.
func TestMistrust(t *testing.T) {
	for name, err := range map[string]error{
		"by the client": fmt.Errorf("tls: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}),
		"by the node":   &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 3, func(*http.Request, int) (*http.Response, error) { return nil, err }, func(b *rig) {
				began := time.Now()
				got := b.post(time.Minute)
				if !errors.Is(got, err) || !errors.Is(got, ErrUnreachable) || errors.Is(got, ErrOutcomeUnknown) || b.asked() != "n1 n2 n3" {
					b.Errorf("asked %s, %v", b.asked(), got)
				}
				b.took(began, 0, 0)
			})
		})
	}
	virtually(t, 2, func(r *http.Request, _ int) (*http.Response, error) {
		if r.URL.Host == "n1" {
			return nil, &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}
		}
		return replying(200, "")
	}, func(b *rig) {
		if err := b.post(0); err != nil || b.asked() != "n1 n2" {
			b.Errorf("asked %s, %v", b.asked(), err)
		}
	})
}

// While a call waits through the restarts of its nodes, it may be refused by ports that now serve HTTPS more often than
// there are nodes. Each time that a node stops, the call may ask all nodes again.
func TestCallOutlivesRestarts(t *testing.T) {
	for name, stops := range map[string]func() (*http.Response, error){
		"draining": func() (*http.Response, error) { return replying(503, `{"code":"draining"}`) },
		"cut": func() (*http.Response, error) {
			time.Sleep(minHeld) // virtual
			return nil, io.ErrUnexpectedEOF
		},
	} {
		held := 0
		virtually(t, 2, func(r *http.Request, _ int) (*http.Response, error) {
			if r.URL.Host == "n1" {
				return replying(400, "Client sent an HTTP request to an HTTPS server.\n")
			}
			if held++; held < 4 {
				return stops()
			}
			return replying(200, "")
		}, func(b *rig) {
			if err := b.post(0); err != nil || b.asked() != "n1 n2 n1 n2 n1 n2 n1 n2" {
				b.Errorf("%s: asked %s, %v", name, b.asked(), err)
			}
		})
	}
}

// A call succeeds if one node serves it, even if another node's file of tokens is old, or another node's port serves
// HTTPS already.
func TestNodesThatDiffer(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
	}{
		{401, `{"code":"unauthenticated"}`}, {400, "Client sent an HTTP request to an HTTPS server.\n"},
	} {
		virtually(t, 2, func(r *http.Request, _ int) (*http.Response, error) {
			if r.URL.Host == "n1" {
				return replying(c.status, c.body)
			}
			return replying(200, "")
		}, func(b *rig) {
			for range 2 {
				if err := b.post(0); err != nil {
					b.Errorf("%s: %v", c.body, err)
				}
			}
			if b.asked() != "n1 n2 n2" {
				b.Errorf("%s: asked %s", c.body, b.asked())
			}
		})
	}
}

// Only a problem document has a code: a proxy's reply never passes for a node's.
func TestOnlyADocumentHasACode(t *testing.T) {
	for _, c := range []struct {
		kind, body string
		code       Code
		text       string
	}{
		{"application/problem+json", `{"code":"over","rule":"r"}`, "over", ""},
		{"application/json", `{"code":"over","rule":"r"}`, "", `{"code":"over","rule":"r"}`},
		{"application/problem+json", `{"code":7}`, "", `{"code":7}`},
		{"text/html", " " + strings.Repeat("ä", 150), "", strings.Repeat("ä", 100) + "…"},
		{"text/html", " " + strings.Repeat("x", 199) + "ä", "", strings.Repeat("x", 199) + "…"},
	} {
		virtually(t, 1, always(404, c.body, "Content-Type", c.kind, "Retry-After", "99"), func(b *rig) {
			var refusal *Refusal
			if err := b.get(0); !errors.As(err, &refusal) || refusal.Code != c.code || refusal.Text != c.text || (refusal.Document == nil) != (c.code == "") {
				b.Errorf("%s: %+v, %v", c.body, refusal, err)
			}
			if AskedFor(refusal) != time.Minute || refusal.Address != "http://n1" {
				b.Errorf("asked for %v by %s", AskedFor(refusal), refusal.Address)
			}
		})
	}
}

// If the cluster has no room for keys, a call with KeyOptional is sent without its key.
func TestOptionalKeyIsGivenUp(t *testing.T) {
	for optional, want := range map[bool]string{true: "n1 n1", false: "n1"} {
		virtually(t, 2, func(r *http.Request, _ int) (*http.Response, error) {
			if r.Header.Get("Idempotency-Key") != "" {
				return replying(429, `{"code":"limit-reached","rule":"keys"}`)
			}
			return replying(200, "")
		}, func(b *rig) {
			err := b.send(0, Call{Method: "DELETE", Key: "k", KeyOptional: optional})
			if b.asked() != want || (err == nil) != optional {
				b.Errorf("optional %v: asked %s, %v", optional, b.asked(), err)
			}
		})
	}
}

func TestPausesGrowAndDiffer(t *testing.T) {
	virtually(t, 1, unreachable, func(b *rig) {
		if err := b.get(30 * time.Second); !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			b.Error(err)
		}
		for i := 1; i < len(b.at); i++ {
			full := min(2*time.Second, 50*time.Millisecond<<min(i-1, 10))
			if pause := b.at[i].Sub(b.at[i-1]); pause < full/2 || pause > full {
				b.Errorf("pause %d is %v, wanted %v … %v", i, pause, full/2, full)
			}
		}
		if len(b.at) < 15 || len(b.at) > 40 {
			b.Errorf("%d attempts in 30 s", len(b.at))
		}
	})
}

func TestMaxPauseBoundsRetryAfter(t *testing.T) {
	virtually(t, 1, func(_ *http.Request, nth int) (*http.Response, error) {
		if nth == 1 {
			return replying(503, `{"code":"no-leader"}`, "Retry-After", "9")
		}
		return replying(200, "")
	}, func(b *rig) {
		began := time.Now()
		if err := b.send(0, Call{Method: "PUT", MaxPause: time.Second}); err != nil {
			b.Error(err)
		}
		b.took(began, time.Second, time.Second)
	})
}

func TestCallWithoutDeadlineGivesUp(t *testing.T) {
	virtually(t, 3, unreachable, func(b *rig) {
		began := time.Now()
		err := b.post(0)
		if !errors.Is(err, ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutcomeUnknown) { // never sent
			b.Error(err)
		}
		b.took(began, time.Minute, time.Minute+2*time.Second)
	})
}

// TestOutageIsLoggedOnce: when no node has replied for two seconds, one line says so. The next such line comes only
// after a node has replied.
func TestOutageIsLoggedOnce(t *testing.T) {
	var replies bool
	virtually(t, 3, func(r *http.Request, nth int) (*http.Response, error) {
		if replies || nth == 1 {
			return replying(http.StatusOK, "")
		}
		return unreachable(r, nth)
	}, func(b *rig) {
		var log strings.Builder
		b.outage.log = slog.New(slog.NewTextHandler(&log, nil))
		for _, k := range []struct {
			replies bool
			limit   time.Duration
			lines   int
		}{{false, time.Second, 0}, {false, time.Second, 0}, {false, 20 * time.Second, 1}, {false, 20 * time.Second, 1}, {true, time.Second, 1}, {false, 5 * time.Second, 2}} {
			replies = k.replies
			_ = b.post(k.limit)
			if got := strings.Count(log.String(), "no node replies, trying on\" nodes="); got != k.lines {
				b.Fatalf("%+v: %d lines\n%s", k, got, log.String())
			}
		}
	})
}

func TestRedirectIsNotFollowed(t *testing.T) {
	virtually(t, 1, always(302, "moved", "Location", "http://elsewhere/"), func(b *rig) {
		var refusal *Refusal
		if err := b.post(0); !errors.As(err, &refusal) || refusal.Status != 302 || len(b.sent) != 1 {
			b.Errorf("%d requests, %v", len(b.sent), err)
		}
	})
}

// A node that never replies costs a call its share of the time. After that the other nodes are asked first.
func TestSilentNodeCostsAShare(t *testing.T) {
	virtually(t, 3, func(r *http.Request, nth int) (*http.Response, error) {
		if r.URL.Host == "n1" {
			return silent(r, nth)
		}
		return replying(200, "")
	}, func(b *rig) {
		for _, share := range []time.Duration{2 * time.Second, 0, 0} {
			began := time.Now()
			if err := b.get(6 * time.Second); err != nil {
				b.Error(err)
			}
			b.took(began, share, share)
		}
	})
}

// A node that holds a request for longer than its share may be dead: the caller decides.
func TestHeldRequest(t *testing.T) {
	virtually(t, 2, silent, func(b *rig) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		r, err := b.Do(ctx, Call{Method: "POST", Until: began.Add(20 * time.Second)})
		if !errors.Is(err, ErrHeld) || r.Node == nil || r.Node.Host() != "n1" {
			b.Errorf("%v from %v", err, r.Node)
		}
		b.took(began, 10*time.Second, 10*time.Second)
		if wait := b.sent[0].URL.Query().Get("wait"); wait != "20000" {
			b.Errorf("the node was allowed to hold the request for %s ms", wait)
		}
		b.Distrust(r.Node)
		_ = b.get(400 * time.Millisecond) // one attempt
		if b.asked() != "n1 n2" {
			b.Errorf("asked %s", b.asked())
		}
	})
}

// TestFollowOfAbsence: if a node held a read of an absent state for the whole wait, it is asked again at once.
func TestFollowOfAbsence(t *testing.T) {
	var replied time.Time
	virtually(t, 1, func(r *http.Request, nth int) (*http.Response, error) {
		if nth > 1 && time.Since(replied) > 10*time.Millisecond {
			t.Errorf("request %d came %v after the reply before it", nth, time.Since(replied))
		}
		if wait, err := time.ParseDuration(r.URL.Query().Get("wait") + "ms"); err == nil {
			time.Sleep(wait) // virtual
		}
		replied = time.Now()
		return replying(404, `{"code":"unknown-item","status":404}`)
	}, func(b *rig) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		for _, err := range Follow(ctx, Call{Method: "GET", Path: []string{"v1", "items", "a"}}, func(k Call) (int, uint64, Reply, error) {
			r, err := b.Do(ctx, k)
			if errors.As(err, new(*Refusal)) {
				err = nil
			}
			return 0, 7, r, err
		}) {
			if err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
		}
		if len(b.sent) < 8 {
			t.Errorf("only %d requests", len(b.sent))
		}
	})
}

func TestCloseEndsCalls(t *testing.T) {
	cause := errors.New("closed")
	for outlives, want := range map[bool]error{false: cause, true: context.DeadlineExceeded} {
		virtually(t, 1, silent, func(b *rig) {
			time.AfterFunc(time.Second, func() { b.Close(cause) })
			if err := b.send(5*time.Second, Call{Method: "GET", OutlivesCaller: outlives}); !errors.Is(err, want) {
				b.Errorf("outlives %v: %v", outlives, err)
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	const ms, second = time.Millisecond, time.Second
	sent := Moment(time.Hour)
	for _, c := range []struct {
		name             string
		replayed         bool
		received         time.Duration // after sent
		waited, expires  int64
		deadline, renews time.Duration // after sent
	}{
		{"granted at once", false, ms, 0, 1024, 1022 * ms, 1024 * ms / 3},
		{"granted after a wait", false, 3 * second, 2048, 1024, 2046*ms + 1022*ms, 2046*ms + 1024*ms/3},
		{"an earlier attempt waited", true, 3 * second, 2048, 1024, 1022 * ms, 1024 * ms / 3},
		{"no grant after the reply", false, second, 5000, 1024, second + 1022*ms, second + 1024*ms/3},
		{"over", false, ms, 0, -5, -ms, 0},
	} {
		r := Reply{Sent: sent, Received: sent.Add(c.received), Replayed: c.replayed}
		deadline, renewAt := r.Deadline(c.waited, c.expires)
		if deadline.Sub(sent) != c.deadline || renewAt.Sub(sent) != c.renews {
			t.Errorf("%s: lives for %v, renewed after %v; wanted %v, %v", c.name, deadline.Sub(sent), renewAt.Sub(sent), c.deadline, c.renews)
		}
	}
}

// If a node cuts off each request at once, it has not held the requests. So the call ends when the other nodes refuse
// its token.
func TestCutsAtOnceAreNoRestarts(t *testing.T) {
	virtually(t, 2, func(r *http.Request, _ int) (*http.Response, error) {
		if r.URL.Host == "n1" {
			return replying(401, `{"code":"unauthenticated"}`)
		}
		return nil, io.ErrUnexpectedEOF
	}, func(b *rig) {
		if err := b.post(0); !errors.Is(err, Code("unauthenticated")) || b.asked() != "n1 n2 n1" {
			b.Errorf("asked %s, %v", b.asked(), err)
		}
	})
}

// A call that must not be carried out twice is repeated only if the failed attempt had no effect.
func TestOnce(t *testing.T) {
	virtually(t, 2, func(_ *http.Request, nth int) (*http.Response, error) {
		switch nth {
		case 1:
			return unreachable(nil, nth)
		case 2:
			return replying(503, `{"code":"no-leader"}`)
		}
		return nil, io.ErrUnexpectedEOF
	}, func(b *rig) {
		err := b.send(0, Call{Method: "POST", NoRepeat: true})
		if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrUnreachable) || b.asked() != "n1 n2 n1" {
			b.Errorf("asked %s, %v", b.asked(), err)
		}
	})
}

// If an earlier attempt has lost its reply, the error of a refusal says that this may be the cause.
func TestUnsureRefusal(t *testing.T) {
	for cut, want := range map[bool]bool{false: false, true: true} {
		virtually(t, 1, func(_ *http.Request, nth int) (*http.Response, error) {
			if nth == 1 && cut {
				return nil, io.ErrUnexpectedEOF
			}
			return replying(404, `{"code":"unknown-member"}`)
		}, func(b *rig) {
			r, err := b.Do(b.Context(), Call{Method: "DELETE", Path: []string{"v1", "thing"}})
			if !errors.Is(err, Code("unknown-member")) || r.Unsure != want {
				b.Errorf("unsure %t, %v", r.Unsure, err)
			}
		})
	}
}

// Only the duration 0 becomes 0 ms.
func TestMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, math.MinInt64: math.MinInt64/1_000_000 - 1, time.Millisecond: 1, time.Millisecond + 1: 2, -1: -1, -time.Millisecond: -1} {
		if got := Milliseconds(d); got != want {
			t.Errorf("%v is %d", d, got)
		}
	}
}

// trickle is a body that brings one byte at each read, and no byte after a number of reads.
type trickle struct {
	ctx  context.Context
	left int
}

func (b *trickle) Read(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	return copy(p, "x"), nil
}

// While the consumer of a stream does not read, the node does not count as silent.
func TestSlowConsumer(t *testing.T) {
	virtually(t, 1, func(r *http.Request, _ int) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(&trickle{r.Context(), 3})}, nil
	}, func(b *rig) {
		s, err := Open(b.Context(), b.Caller, []string{"v1", "thing"}, nil, time.Second)
		if err != nil {
			b.Fatal(err)
		}
		for n := range 3 {
			time.Sleep(time.Minute) // virtual
			if _, err := s.Read(make([]byte, 9)); err != nil {
				b.Errorf("read %d: %v", n, err)
			}
		}
		time.Sleep(time.Minute) // virtual
		began := time.Now()
		if _, err := s.Read(make([]byte, 9)); !errors.Is(err, errSilent) {
			b.Errorf("the end: %v", err)
		}
		b.took(began, time.Second, time.Second)
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
}
