package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client/credentials"
	"github.com/signalbox/signalbox/client/internal/calls"
)

// Config configures a Client. Only Addresses is needed.
type Config struct {
	// Addresses are the nodes' base URLs: "http://n1:8701", or "n1:8701" for the same; a path before the API's
	// is kept. Every node serves everything, so one address is enough, and more are for fail-over. Each Client
	// tries them in a random order, so that clients spread over the nodes.
	Addresses []string

	// InOrder makes the Client try the Addresses in the order given: the nearest first,
	// for example.
	InOrder bool

	// HTTPClient sends the requests; nil: the Client makes one. A given HTTPClient stays the caller's: Close
	// leaves its connections alone, and its Timeout must be longer than LongestWait + AttemptTimeout. Redirects
	// are followed only if its CheckRedirect does so.
	HTTPClient *http.Client

	// Header is added to every request, for a proxy in front that asks for one.
	Header http.Header

	// Token goes with every request as a bearer token. TokenFile names a file that has the token instead; it is
	// read again when it changes, and when a node refuses the token. A token goes to the Addresses alone. Over
	// plain HTTP to another machine, everybody on the way could read it: for such an address New fails, unless
	// InsecureHTTP is set, or the same address is listed with https:// too. Then the plain address gets no
	// token, and serves until the node turns to HTTPS. The user of an address, as in http://TOKEN@host, counts
	// as a token.
	Token        string
	TokenFile    string
	InsecureHTTP bool

	// CA names a PEM file with the authorities that may have issued the certificates of https:// Addresses;
	// without it, the system's authorities count. CertFile and KeyFile name the client's certificate and its
	// key, which nodes may take instead of a token. They are read again when they change, and can't be used
	// with an HTTPClient, which has its own settings.
	CA                string
	CertFile, KeyFile string

	// Anonymous leaves host, pid and user out of the metadata of sessions and leases, by which people see whose
	// they are. Metadata of these names that the caller gives is still sent.
	Anonymous bool

	// Logger gets fail-over (debug), failed renewals, losses and that no node replies (warn). Returned errors are not logged. nil: no log.
	Logger *slog.Logger

	// AttemptTimeout bounds one attempt at one node, in addition to the wait that it names and to its share of
	// the time to a call's deadline. 0 means 12 s: a node may hold a request for 10 s while the cluster looks
	// for a leader, before it reports that there is no leader. Renewals and releases allow less.
	AttemptTimeout time.Duration

	// LongestWait bounds one listening request of a session's acquire or of a Watch; longer waits are made of
	// several, which keep their place. 0 means 50 s. Choose less if a proxy cuts silent requests sooner.
	LongestWait time.Duration

	// MaxWait is the longest wait that the nodes accept in one request (their own flag). A one-call Acquire and
	// a Down keep their place that long. 0 means 10 min.
	MaxWait time.Duration

	// GiveUpAfter ends a call that no node could carry out for that time, if its ctx has no deadline. 0 means 1
	// min. A wait for permits goes on while the cluster is there but overloaded.
	GiveUpAfter time.Duration

	suspended func() time.Duration // for tests; nil: as the system says
}

// Client talks to one cluster. Make it with New, end it with Close. All its
// methods are safe for concurrent use; one Client serves a whole process.
type Client struct {
	cfg   Config // complete, see New
	log   *slog.Logger
	calls *calls.Caller

	closing context.Context // ends when Close begins; cancelled under mu
	close   context.CancelCauseFunc

	mu       sync.Mutex
	sessions map[*Session]struct{} // open ones, also of one-call leases
	ending   map[*Session]struct{} // closed ones whose end is not confirmed yet
	waiting  sync.WaitGroup        // one-call waits; grows only under mu, before Close

	contention contention
}

// New makes a Client. It sends no request and starts no goroutine, so it does not block; it fails for addresses
// that are not base URLs, and for credentials that can't be read or may not be sent there.
func New(cfg Config) (*Client, error) {
	addresses := slices.Clone(cfg.Addresses)
	if !cfg.InOrder {
		rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	}
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&cfg.AttemptTimeout, 12 * time.Second},
		{&cfg.LongestWait, 50 * time.Second},
		{&cfg.MaxWait, 10 * time.Minute},
		{&cfg.GiveUpAfter, time.Minute},
	} {
		if *d.value <= 0 {
			*d.value = d.otherwise
		}
	}
	cfg.LongestWait = min(cfg.LongestWait, cfg.MaxWait)
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	settings := credentials.Config{Token: cfg.Token, TokenFile: cfg.TokenFile, CA: cfg.CA, Cert: cfg.CertFile, Key: cfg.KeyFile, Plain: cfg.InsecureHTTP,
		Warn: func(err error) { log.Warn("credentials can't be read again", "error", err) }}
	sent := settings.Source()
	if sent == credentials.None && (cfg.HTTPClient != nil || len(cfg.Header) > 0) {
		sent = "" // these may have sent some
	}
	caller, err := calls.New(calls.Config{Addresses: addresses, HTTPClient: cfg.HTTPClient, Header: cfg.Header, Credentials: settings, Log: log,
		AttemptTimeout: cfg.AttemptTimeout, LongestWait: cfg.LongestWait, GiveUpAfter: cfg.GiveUpAfter, Suspended: cfg.suspended,
		Refused: func(r *calls.Refusal) error { return newError(r, sent) }})
	if err != nil {
		return nil, fmt.Errorf("signalbox: %w", err)
	}
	c := &Client{cfg: cfg, log: log, calls: caller, sessions: map[*Session]struct{}{}, ending: map[*Session]struct{}{}}
	c.closing, c.close = context.WithCancelCause(context.Background())
	return c, nil
}

// Calls is for package operator, which sends its requests by it. Its type is internal.
func (c *Client) Calls() *calls.Caller { return c.calls }

// Close ends every session and lease that is still open, as their Close and Release do, and the one-call waits.
// Calls under way end with ErrClosed. It blocks until all goroutines of the Client have ended, or ctx ends:
// then the error names the sessions whose end is not confirmed, and goroutines go on with these until their
// deadlines, when they expire. Called again, it waits for these, by its own ctx.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.close(ErrClosed)
	both := maps.Clone(c.sessions)
	maps.Copy(both, c.ending)
	c.mu.Unlock()
	open := slices.Collect(maps.Keys(both))
	failed := make([]error, len(open))
	var all sync.WaitGroup
	for i, s := range open {
		all.Go(func() { failed[i] = s.Close(ctx) })
	}
	all.Go(c.waiting.Wait)
	stop := context.AfterFunc(ctx, func() { c.calls.Close(ErrClosed) })
	all.Wait()
	stop()
	c.calls.Close(ErrClosed)
	c.calls.CloseIdle()
	return errors.Join(failed...)
}

// wait announces a one-call wait: Close ends its ctx, and then waits until it has withdrawn its request. The
// caller must call end.
func (c *Client) wait(ctx context.Context) (_ context.Context, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Err() != nil {
		return nil, nil, fmt.Errorf("signalbox: %w", ErrClosed)
	}
	c.waiting.Add(1)
	ctx, stop := calls.Both(ctx, c.closing)
	return ctx, func() {
		stop()
		c.waiting.Done()
	}, nil
}

// addEnding registers a session that is about to end, for Close.
func (c *Client) addEnding(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending[s] = struct{}{}
}

// removeEnding removes a session that has ended. A session whose end is not confirmed stays for a Close that is
// called again.
func (c *Client) removeEnding(s *Session, err error) {
	c.mu.Lock()
	closing := c.closing.Err() != nil
	if err == nil || !closing {
		delete(c.ending, s)
	}
	c.mu.Unlock()
	if closing {
		c.calls.CloseIdle()
	}
}
