//go:build chaos && linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox/signalbox/internal/checks"
	"github.com/signalbox/signalbox/internal/noderedclient"
	"github.com/signalbox/signalbox/internal/throttleclient"
)

// rawClient is a client that sends plain HTTP requests, each under a key, and repeats them at
// the next node until one has an outcome.
type rawClient struct {
	addresses []string
	http      *http.Client
	keys      int
}

func newRawClient(addresses []string, transport *http.Transport) *rawClient {
	return &rawClient{addresses: addresses, http: &http.Client{Transport: transport}}
}

// rawReply has the members that the checks need.
type rawReply struct {
	status  int
	Code    string `json:"code"`
	Session string `json:"session"`
	Token   uint64 `json:"token"`
	Value   int64  `json:"value"`
}

// errNoOutcome says that no node has replied in time: the call may have been carried out.
var errNoOutcome = errors.New("no outcome")

// send repeats a request until it has an outcome, or ctx ends.
func (c *rawClient) send(ctx context.Context, method, path, body, key string) (rawReply, error) {
	for node := 0; ; node++ {
		attempt, cancel := context.WithTimeout(ctx, 4*time.Second)
		r, err := c.once(attempt, c.addresses[node%len(c.addresses)], method, path, body, key)
		cancel()
		if err == nil && r.status < 500 && r.status != http.StatusTooManyRequests {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, errNoOutcome
		case <-time.After(20 * time.Millisecond): // before the next attempt
		}
	}
}

func (c *rawClient) once(ctx context.Context, address, method, path, body, key string) (rawReply, error) {
	request, err := http.NewRequestWithContext(ctx, method, address+path, strings.NewReader(body))
	if err != nil {
		return rawReply{}, err
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return rawReply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	r := rawReply{status: response.StatusCode}
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

func (a *actor) key() string {
	a.raw.keys++
	return fmt.Sprintf("%sactor-%d-key-%d", a.r.prefix, a.Number, a.raw.keys)
}

// onceRaw does one thing by plain HTTP.
func (a *actor) onceRaw() {
	switch a.Random.IntN(3) {
	case 0:
		a.rawCount()
	default:
		a.rawLease()
	}
}

// rawCount moves the semaphore without leases.
func (a *actor) rawCount() {
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	o := checks.Operation{Client: a.Number, Kind: []string{"up", "down"}[a.Random.IntN(2)], Semaphore: a.r.name("count"), Count: 1 + a.Random.Int64N(3), Exact: true, Call: a.Stamp()}
	r, err := a.raw.send(ctx, http.MethodPost, "/v1/semaphores/"+o.Semaphore+"/"+o.Kind, fmt.Sprintf(`{"count":%d}`, o.Count), a.key())
	o.Available = r.Value
	switch {
	case err != nil:
		o.Outcome = checks.Unknown
	case r.status == http.StatusOK:
		o.Outcome = checks.Done
	case r.Code == "unavailable":
		o.Outcome = checks.Refused
	default:
		a.r.fail("%s of %s: %d %s", o.Kind, o.Semaphore, r.status, r.Code)
		return
	}
	a.Add(o)
}

// rawLease acquires a lease of its own under a key, does not renew it, and ends its session.
func (a *actor) rawLease() {
	pick, count := a.Pick()
	ttl := time.Duration(4000+a.Random.IntN(4000)) * time.Millisecond
	wait, body := a.Random.IntN(2) == 0, fmt.Sprintf(`{"ttl":%d,"count":%d`, ttl.Milliseconds(), count)
	if wait {
		body += fmt.Sprintf(`,"wait":%d`, a.Random.IntN(2000))
	}
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	o, sent := a.Asking(pick.Name, count, pick.Exact), time.Now()
	r, err := a.raw.send(ctx, http.MethodPost, "/v1/semaphores/"+o.Semaphore+"/leases", body+"}", a.key())
	switch {
	case err != nil:
		o.Outcome = checks.Unknown
		a.Add(o)
		a.Drop(o, o.Call, 0)
	case r.status == http.StatusOK || r.status == http.StatusCreated:
		o.Outcome, o.Token = checks.Done, r.Token
		a.Add(o)
		a.NoteTTL(r.Session, ttl)
		a.rawUse(o, r, sent.Add(ttl*9/10))
	case r.Code == "unavailable":
		o.Outcome, o.Exact = checks.Refused, o.Exact && !wait
		a.Add(o)
	case r.Code == "over": // granted to an attempt whose reply was lost, and expired
		a.Withdrawn(o)
	default:
		a.r.fail("acquire of %s: %d %s", o.Semaphore, r.status, r.Code)
	}
}

// rawUse counts on a lease for a while, and until a moment at most.
func (a *actor) rawUse(o checks.Operation, r rawReply, until time.Time) {
	from, fenced := a.Stamp(), a.Fenced(o.Semaphore)
	valid := func() bool { return time.Now().Before(until) }
	if fenced {
		a.Arrive(checks.Write{Semaphore: o.Semaphore, Session: r.Session, Token: r.Token}, valid)
	}
	select {
	case <-time.After(min(a.heldFor(), time.Until(until))): // the client's work
	case <-a.r.stop:
	}
	to := min(a.Stamp(), int64(until.Sub(a.Began)))
	a.NoteBelief(checks.Belief{Semaphore: o.Semaphore, Session: r.Session, Token: r.Token, Count: o.Count, From: from, To: to})
	a.NoteDeadline(r.Session, until)
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	end := o
	end.Kind, end.Token, end.Exact, end.Call = "release", 0, false, a.Stamp()
	if ended, err := a.raw.send(ctx, http.MethodDelete, "/v1/sessions/"+r.Session, "", ""); err != nil || ended.status != http.StatusNoContent {
		a.Drop(o, end.Call, 0)
		return
	}
	end.Outcome = checks.Done
	a.Add(end)
}

// hurried waits less between attempts than the clients of the dialects do.
func hurried(ctx context.Context, _ time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond): // before the next attempt
		return nil
	}
}

// throttle acquires by the interface of throttle, through a peer of its own. The token is
// that of the peer's lease.
func (a *actor) throttle() {
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	peers := &throttleclient.Client{BaseURL: a.r.urls(a.Random.IntN(len(a.r.nodes)))[0], HTTP: a.raw.http, Pause: hurried}
	ttl := 6 * time.Second
	peer, err := peers.NewPeer(ctx, ttl)
	if err != nil {
		return
	}
	pick, count := a.Pick()
	o, sent := a.Asking(pick.Name, count, false), time.Now()
	acquired, err := peers.Acquire(ctx, peer, o.Semaphore, count, time.Duration(a.Random.IntN(1500))*time.Millisecond, ttl)
	session := strconv.FormatUint(peer, 10)
	var lease rawReply
	if err == nil && acquired {
		lease, err = a.raw.send(ctx, http.MethodGet, "/v1/sessions/"+session+"/leases/"+o.Semaphore, "", "")
	}
	if err == nil && acquired && lease.status == http.StatusOK {
		lease.Session = session
		o.Outcome, o.Token = checks.Done, lease.Token
		a.Add(o)
		a.NoteTTL(session, ttl)
		a.rawUse(o, lease, sent.Add(ttl*9/10))
		return
	}
	// Its request or lease ends with the peer.
	if ended, err := a.raw.send(ctx, http.MethodDelete, "/v1/sessions/"+session, "", ""); err == nil && ended.status == http.StatusNoContent {
		a.Withdrawn(o)
		return
	}
	o.Outcome = checks.Unknown
	a.Add(o)
	a.Drop(o, o.Call, 0)
}

// nodered moves the semaphore without leases by the interface of Node-RED's subflow, under
// keys.
func (a *actor) nodered() {
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	c := &noderedclient.Client{Addresses: a.r.urls(a.Number), HTTP: a.raw.http, Key: a.key, Pause: func(ctx context.Context, d time.Duration) error { return hurried(ctx, d) }}
	o := checks.Operation{Client: a.Number, Semaphore: a.r.name("count"), Count: 1, Exact: true, Call: a.Stamp()}
	var err error
	if a.Random.IntN(2) == 0 {
		o.Kind = "up"
		o.Available, err = c.Up(ctx, o.Semaphore)
	} else {
		o.Kind = "down"
		o.Available, err = c.Down(ctx, o.Semaphore)
	}
	switch {
	case err == nil:
		o.Outcome = checks.Done
	case errors.Is(err, noderedclient.ErrLocked):
		o.Outcome = checks.Refused
	default:
		o.Outcome = checks.Unknown
	}
	a.Add(o)
}
