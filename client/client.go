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
	"strconv"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/client/credentials"
	"github.com/signalbox/signalbox/client/internal/calls"
)

// Config configures a Client. Only Addresses is needed.
type Config struct {
	// Addresses are the nodes' base URLs: "http://n1:8701", or "n1:8701" for the same. A URL may have a path, for
	// example of a proxy; the API's paths are appended to it. One address is enough because every node serves all
	// requests; further addresses are for fail-over. Each Client tries them in a random order, which spreads clients
	// over the nodes.
	Addresses []string

	// InOrder makes the Client try the Addresses in the order given, for example the nearest first.
	InOrder bool

	// HTTPClient sends the requests; nil: the Client makes an http.Client. Close does not close the connections of a
	// given HTTPClient. Its Timeout must be longer than LongestWait + AttemptTimeout. Redirects are followed only if
	// its CheckRedirect does so.
	HTTPClient *http.Client

	// Cell is the number of the cell to which the Addresses belong: nodes of another cell refuse the requests. 0: no
	// check. NewCells sets it.
	Cell int

	// Header is added to every request, for example for a proxy that requires it.
	Header http.Header

	// Token goes with every request to the Addresses as a bearer token. TokenFile names a file that has the token
	// instead; it is read again when it changes, and when a node refuses the token. New fails for an address in plain
	// HTTP on another machine, where the network could read the token, unless InsecureHTTP is set or the same address
	// is listed with https:// too. In the latter case the plain address gets no token; it is used until the node turns
	// to HTTPS. The user of an address, as in http://TOKEN@host, counts as a token.
	Token        string
	TokenFile    string
	InsecureHTTP bool

	// CA names a PEM file with the authorities that the client trusts for https:// Addresses; "" means the system's
	// authorities. CertFile and KeyFile name the client's certificate and its key, which nodes may accept instead of a
	// token. The files are read again when they change. They can't be used with an HTTPClient, which has its own TLS
	// settings.
	CA                string
	CertFile, KeyFile string

	// Anonymous leaves the entries host, pid and user out of the metadata of sessions and leases, which show people
	// who holds a lease. Metadata of these names that the caller sets is still sent.
	Anonymous bool

	// Logger gets fail-over (debug), failed renewals, losses and that no node replies (warn). Returned errors are not logged. nil: no log.
	Logger *slog.Logger

	// AttemptTimeout bounds one attempt at one node, in addition to the time that the node may hold the HTTP request. A
	// call with a deadline also divides its time among the nodes. 0 means 12 s, because a node may hold an HTTP request
	// for 10 s while the cluster elects a leader. Renewals and releases have shorter limits.
	AttemptTimeout time.Duration

	// LongestWait bounds the time that a node may hold one HTTP request of a session's acquire or of a Watch. A longer
	// wait is made of several HTTP requests, and keeps its place. 0 means 50 s. Choose less if a proxy closes idle
	// connections sooner.
	LongestWait time.Duration

	// MaxWait is the longest wait that the nodes accept in one HTTP request, their flag --max-wait. A Client.Acquire and
	// a Down keep their place that long. 0 means 10 min.
	MaxWait time.Duration

	// GiveUpAfter ends a call whose ctx has no deadline, once no node could carry it out for that time. 0 means 1 min.
	// A wait for permits goes on while the cluster is reachable but overloaded.
	GiveUpAfter time.Duration

	suspended func() time.Duration // for tests; nil: as the system says
}

// Client talks to one cluster. Make it with New, end it with Close. All its methods are safe for concurrent use, so
// one Client is enough for a process.
type Client struct {
	cfg   Config // with the defaults that New fills in
	log   *slog.Logger
	calls *calls.Caller

	closing context.Context // ends when Close begins; cancelled under mu
	close   context.CancelCauseFunc

	mu       sync.Mutex
	sessions map[*Session]struct{} // the open sessions, including the sessions of one-call leases
	ending   map[*Session]struct{} // the closed sessions whose end is not confirmed yet
	waiting  sync.WaitGroup        // one-call waits; grows only under mu, before Close

	contention contention
}

// New makes a Client. It does not block, since it sends no request. It fails for addresses that are not base URLs, and
// for credentials that can't be read or must not be sent to an address.
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
		sent = "" // a given HTTPClient or Header may have sent credentials
	}
	header := http.Header{}
	maps.Copy(header, cfg.Header)
	if cfg.Cell != 0 {
		header.Set(cells.Header, strconv.Itoa(cfg.Cell))
	}
	caller, err := calls.New(calls.Config{Addresses: addresses, HTTPClient: cfg.HTTPClient, Header: header, Credentials: settings, Log: log,
		AttemptTimeout: cfg.AttemptTimeout, LongestWait: cfg.LongestWait, GiveUpAfter: cfg.GiveUpAfter, Suspended: cfg.suspended,
		Refused: func(r *calls.Refusal) error { return newError(r, sent) }})
	if err != nil {
		return nil, fmt.Errorf("signalbox: %w", err)
	}
	c := &Client{cfg: cfg, log: log, calls: caller, sessions: map[*Session]struct{}{}, ending: map[*Session]struct{}{}}
	c.closing, c.close = context.WithCancelCause(context.Background())
	return c, nil
}

// Calls is for packages operator, items and batch, which send their requests by it. Its type is internal.
func (c *Client) Calls() *calls.Caller { return c.calls }

// Close ends the open sessions and leases and the waits of Acquire and Down. Calls under way end with ErrClosed. It
// blocks until all goroutines of the Client have ended. If ctx ends first, the error names the sessions whose end is
// not confirmed; goroutines go on to end these until they expire. A second call of Close waits for these goroutines.
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

// wait registers the wait of an Acquire or Down. Close ends the returned ctx, and then waits until the caller has
// withdrawn its request. The caller must call end.
func (c *Client) wait(ctx context.Context) (_ context.Context, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Err() != nil {
		return nil, nil, fmt.Errorf("signalbox: %w", ErrClosed)
	}
	c.waiting.Add(1)
	ctx, stop := calls.WithEither(ctx, c.closing)
	return ctx, func() {
		stop()
		c.waiting.Done()
	}, nil
}

// addEnding registers a session that is about to end, so that Close waits for it.
func (c *Client) addEnding(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending[s] = struct{}{}
}

// removeEnding removes a session that has ended. A session whose end is not confirmed stays registered, for another
// call of Close.
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
