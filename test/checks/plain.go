package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox/signalbox/test/noderedclient"
	"github.com/signalbox/signalbox/test/throttleclient"
)

// Plain is a user of plain HTTP that records outcomes as an Actor does. Acquires, ups and downs have an idempotency
// key, and a request is repeated at the next node until it has an outcome. Throttle's requests have no key, and are
// sent to one node only. Only one goroutine may use it. Each of Once, Throttle and NodeRED makes one operation.
type Plain struct {
	*Actor
	Addresses []string // of the nodes
	HTTP      *http.Client
	Attempt   time.Duration        // bounds one attempt
	Pause     time.Duration        // between attempts
	Held      func() time.Duration // draws how long a lease is held
	Stop      <-chan struct{}      // closed: leases are released
	Keys      string               // the prefix of the keys; differs between runs on one cluster
	Fail      func(format string, arguments ...any)

	keys int
}

// plainReply has the members that the checks need.
type plainReply struct {
	status  int
	Code    string `json:"code"`
	Detail  string `json:"detail"`
	Session string `json:"session"`
	Token   uint64 `json:"token"`
	Value   int64  `json:"value"`
}

// errNoOutcome is returned if ctx ended before a reply with an outcome: the call may have been carried out.
var errNoOutcome = errors.New("no outcome")

// send repeats a request until it has an outcome, or ctx ends.
func (a *Plain) send(ctx context.Context, method, path, body, key string) (plainReply, error) {
	for node := 0; ; node++ {
		attempt, cancel := context.WithTimeout(ctx, a.Attempt)
		r, err := a.once(attempt, a.Addresses[node%len(a.Addresses)], method, path, body, key)
		cancel()
		if err == nil && final(r.status) {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, errNoOutcome
		case <-time.After(a.Pause):
		}
	}
}

// final reports whether a status shows the outcome. Other statuses may be due to a fault. 202 is the reply to a repeat
// that stopped listening before the outcome.
func final(status int) bool {
	return status < 500 && status != http.StatusTooManyRequests && status != http.StatusAccepted
}

// unexpected reports whether a fault can't be the cause of an error of a dialect's client.
func unexpected(err error) bool {
	var network net.Error // a context that has ended is one, too
	var nodered *noderedclient.StatusError
	var throttle *throttleclient.HTTPError
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, throttleclient.ErrUnknownPeer), errors.As(err, &network):
		return false
	case errors.As(err, &nodered):
		return final(nodered.Status)
	case errors.As(err, &throttle):
		return final(throttle.Status)
	}
	return true
}

func (a *Plain) once(ctx context.Context, address, method, path, body, key string) (plainReply, error) {
	request, err := http.NewRequestWithContext(ctx, method, address+path, strings.NewReader(body))
	if err != nil {
		return plainReply{}, err
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := a.HTTP.Do(request)
	if err != nil {
		return plainReply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	r := plainReply{status: response.StatusCode}
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

func (a *Plain) key() string {
	a.keys++
	return fmt.Sprintf("%sclient-%03d-key-%06d", a.Keys, a.Number, a.keys)
}

// Once makes one operation with the native API.
func (a *Plain) Once() {
	if a.Random.IntN(3) == 0 {
		a.count()
	} else {
		a.lease()
	}
}

// count changes the value of the semaphore without leases.
func (a *Plain) count() {
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	o := Operation{Client: a.Number, Kind: []string{"up", "down"}[a.Random.IntN(2)], Semaphore: a.Run.Name("count"),
		Count: 1 + a.Random.Int64N(3), Exact: true, Call: a.Stamp()}
	r, err := a.send(ctx, http.MethodPost, "/v1/semaphores/"+o.Semaphore+"/"+o.Kind,
		fmt.Sprintf(`{"count":%d}`, o.Count), a.key())
	o.Available = r.Value
	switch {
	case err != nil:
		o.Outcome = Unknown
	case r.status == http.StatusOK:
		o.Outcome = Done
	case r.Code == "unavailable":
		o.Outcome = Refused
	default:
		a.Fail("%s of %s: %d %s: %s", o.Kind, o.Semaphore, r.status, r.Code, r.Detail)
		return
	}
	a.Add(o)
}

// lease acquires under a key, with a separate session, does not renew the lease, and ends the session.
func (a *Plain) lease() {
	pick, count := a.Pick()
	ttl := a.Run.TTL(24 * time.Second)
	wait, body := a.Random.IntN(2) == 0, fmt.Sprintf(`{"ttl":%d,"count":%d`, ttl.Milliseconds(), count)
	if wait {
		body += fmt.Sprintf(`,"wait":%d`, a.Random.IntN(2000))
	}
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	o, sent := a.Asking(pick.Name, count, pick.Exact), time.Now()
	r, err := a.send(ctx, http.MethodPost, "/v1/semaphores/"+o.Semaphore+"/leases", body+"}", a.key())
	switch {
	case err != nil:
		o.Outcome = Unknown
		a.Add(o)
		a.Drop(o, o.Call, 0)
	case r.status == http.StatusOK || r.status == http.StatusCreated:
		o.Outcome, o.Token = Done, r.Token
		a.Add(o)
		a.use(o, r, sent, ttl)
	case r.Code == "unavailable":
		o.Outcome, o.Exact = Refused, o.Exact && !wait
		a.Add(o)
	case r.Code == "over": // granted to an attempt whose reply was lost, and expired
		a.Withdrawn(o)
	default:
		a.Fail("acquire of %s: %d %s: %s", o.Semaphore, r.status, r.Code, r.Detail)
	}
}

// use counts on a lease for a while, at most for nine tenths of its ttl.
func (a *Plain) use(o Operation, r plainReply, sent time.Time, ttl time.Duration) {
	a.NoteTTL(r.Session, ttl)
	a.NoteDeadline(r.Session, sent.Add(ttl))
	until := sent.Add(ttl * 9 / 10)
	from, fenced := a.Stamp(), a.Fenced(o.Semaphore)
	valid := func() bool { return time.Now().Before(until) }
	if fenced {
		a.Arrive(Write{Semaphore: o.Semaphore, Session: r.Session, Token: r.Token}, valid)
	}
	select {
	case <-time.After(min(a.Held(), time.Until(until))): // the client's work
	case <-a.Stop:
	}
	to := min(a.Stamp(), int64(until.Sub(a.Began)))
	a.NoteBelief(Belief{Semaphore: o.Semaphore, Session: r.Session, Token: r.Token, Count: o.Count, From: from, To: to})
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	end := o
	end.Kind, end.Token, end.Exact, end.Call = "release", 0, false, to // a late reply may have come after the lease's end
	if ended, err := a.send(ctx, http.MethodDelete, "/v1/sessions/"+r.Session, "", ""); err != nil || ended.status != http.StatusNoContent {
		a.Drop(o, to, 0)
		return
	}
	end.Outcome = Done
	a.Add(end)
}

// hurry is the pause between attempts, which is shorter than in the clients of the dialects.
func (a *Plain) hurry(ctx context.Context, _ time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(a.Pause):
		return nil
	}
}

// Throttle acquires with the interface of throttle, through a new peer. The token is the token of the peer's lease.
func (a *Plain) Throttle() {
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	peers := &throttleclient.Client{BaseURL: a.Addresses[a.Random.IntN(len(a.Addresses))], HTTP: a.HTTP, Pause: a.hurry}
	ttl := a.Run.TTL(24 * time.Second)
	peer, err := peers.NewPeer(ctx, ttl)
	if unexpected(err) {
		a.Fail("a new peer: %v", err)
	}
	if err != nil {
		return
	}
	pick, count := a.Pick()
	o, sent := a.Asking(pick.Name, count, false), time.Now()
	acquired, err := peers.Acquire(ctx, peer, o.Semaphore, count, time.Duration(a.Random.IntN(1500))*time.Millisecond, ttl)
	if unexpected(err) {
		a.Fail("acquire of %s by a peer: %v", o.Semaphore, err)
	}
	session := strconv.FormatUint(peer, 10)
	var lease plainReply
	if err == nil && acquired {
		lease, err = a.send(ctx, http.MethodGet, "/v1/sessions/"+session+"/leases/"+o.Semaphore, "", "")
	}
	if err == nil && acquired && lease.status == http.StatusOK {
		lease.Session = session
		o.Outcome, o.Token = Done, lease.Token
		a.Add(o)
		a.use(o, lease, sent, ttl)
		return
	}
	// The end of the peer ends its request or lease.
	ctx, cancel = a.Patient(40 * time.Second)
	defer cancel()
	if ended, err := a.send(ctx, http.MethodDelete, "/v1/sessions/"+session, "", ""); err == nil && ended.status == http.StatusNoContent {
		a.Withdrawn(o)
		return
	}
	o.Outcome = Unknown
	a.Add(o)
	a.Drop(o, o.Call, 0)
}

// NodeRED changes the value of the semaphore without leases with the interface of Node-RED's subflow, under keys.
func (a *Plain) NodeRED() {
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	c := &noderedclient.Client{Addresses: a.Addresses, HTTP: a.HTTP, Key: a.key, Pause: a.hurry}
	o := Operation{Client: a.Number, Semaphore: a.Run.Name("count"), Count: 1, Exact: true, Call: a.Stamp()}
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
		o.Outcome = Done
	case errors.Is(err, noderedclient.ErrLocked):
		o.Outcome = Refused
	case unexpected(err):
		a.Fail("%s of %s by a flow: %v", o.Kind, o.Semaphore, err)
		return
	default:
		o.Outcome = Unknown
	}
	a.Add(o)
}
