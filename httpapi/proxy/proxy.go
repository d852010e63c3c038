package proxy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Config is the configuration of a Proxy.
type Config struct {
	Cells     *cells.Map
	Transport http.RoundTripper // to the nodes
	Logger    hclog.Logger      // nil: no log
	// IdleTimeout bounds a client's connection without a request; 0: no bound. cmd/signalbox has the default.
	IdleTimeout time.Duration
}

// Proxy is an http.Handler.
type Proxy struct {
	transport http.RoundTripper
	idle      time.Duration
	log       hclog.Logger
	reading   chan struct{} // has a member for each body in memory
	table     atomic.Pointer[table]
	forward   *httputil.ReverseProxy

	bodyTimeout time.Duration
}

// table has the cells, and the nodes of each cell by its number. When the file is read again, a new table replaces it.
type table struct {
	*cells.Map
	nodes   map[int]*nodes
	current context.Context // ends then
	end     context.CancelFunc
}

// New returns a Proxy. It fails if the address of a node is no base URL. It sends no request.
func New(cfg Config) (*Proxy, error) {
	p := &Proxy{transport: cfg.Transport, idle: cfg.IdleTimeout, log: cfg.Logger, reading: make(chan struct{}, bodiesInMemory), bodyTimeout: bodyTimeout}
	if p.log == nil {
		p.log = hclog.NewNullLogger()
	}
	// Rewrite leaves the client's Host unchanged, so that a node judges Host and Origin as it does without a proxy.
	p.forward = &httputil.ReverseProxy{Rewrite: rewrite, Transport: chosenCell{}, ErrorHandler: p.fail,
		ErrorLog: p.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})}
	return p, p.SetCells(cfg.Cells)
}

// SetCells replaces the cells. Requests under way go on at their cells. Streams of events end, since their names may now
// be in other cells.
func (p *Proxy) SetCells(m *cells.Map) error {
	t := &table{Map: m, nodes: map[int]*nodes{}}
	t.current, t.end = context.WithCancel(context.Background())
	for _, c := range m.All() {
		nodesOfCell, err := newNodes(c, p.transport, p.log)
		if err != nil {
			return err
		}
		t.nodes[c.Number] = nodesOfCell
	}
	if before := p.table.Swap(t); before != nil {
		before.end()
	}
	return nil
}

// rewrite adds the client's address to the addresses that earlier proxies have added.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	r.SetXForwarded()
}

// ServeHTTP serves one request. It blocks until the request has its reply.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w = newPatientWriter(w)
	if r.ContentLength != 0 {
		r.Body = newPatientBody(w, r, p.bodyTimeout)
	}
	exchange.CanonicalPath(r)
	if r.Header.Get(exchange.HeaderRequest) == "" {
		var drawn [8]byte
		_, _ = rand.Read(drawn[:]) // never fails
		r.Header.Set(exchange.HeaderRequest, hex.EncodeToString(drawn[:]))
	}
	t := p.table.Load()
	switch r.URL.Path {
	case "/livez", "/readyz", "/health": // of the proxy: one cell that is down must not take the others away
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("Ok")) // the client's matter
		return
	}
	var chosen *cells.Cell
	if number, rest, ok := chosenByPath(r.URL); ok {
		if chosen = t.Numbered(number); chosen == nil {
			p.refuse(w, r, exchange.NewProblem("unknown-route", "No cell has the number "+strconv.Itoa(number)+"."))
			return
		}
		r.URL = rest
	}
	if err := p.serve(w, r, t, chosen); err != nil {
		p.refuse(w, r, err)
	}
}

// chosenByPath reads a path that begins with /cells/N. It returns N, and the URL without this beginning.
func chosenByPath(u *url.URL) (number int, rest *url.URL, ok bool) {
	text, isChosen := strings.CutPrefix(u.Path, "/cells/")
	digits, path, hasPath := strings.Cut(text, "/")
	escaped := u.RawPath == "" || strings.HasPrefix(u.RawPath, "/cells/"+digits+"/")
	if number, err := strconv.Atoi(digits); isChosen && hasPath && escaped && err == nil {
		shorter := *u
		shorter.Path = "/" + path
		shorter.RawPath = strings.TrimPrefix(u.RawPath, "/cells/"+digits)
		return number, &shorter, true
	}
	return 0, nil, false
}

// serve sends a request to its cell, or to all cells. chosen is the cell of /cells/N, or nil.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, t *table, chosen *cells.Cell) error {
	if r.URL.Path == "/v1/events" {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(t.current, cancel)()
		r = r.WithContext(ctx)
	}
	if all := t.All(); len(all) == 1 {
		p.send(w, r, t.nodes[all[0].Number])
		return nil
	}
	a := &routedRequest{Proxy: p, w: w, r: r, table: t, chosen: chosen}
	if chosen != nil && a.isAdministrative() {
		p.send(w, r, t.nodes[chosen.Number])
		return nil
	}
	defer a.releaseBody()
	s, err := a.subject()
	if err != nil {
		return err
	}
	if s.whole != nil && r.Method != http.MethodOptions { // browsers ask one cell what a page may send
		return s.whole(a)
	}
	c, err := a.cellOf(s)
	if err != nil {
		return err
	}
	p.send(w, r, t.nodes[c.Number])
	return nil
}

// routedRequest is one request for which the proxy looks for a cell.
type routedRequest struct {
	*Proxy
	w     http.ResponseWriter
	r     *http.Request
	table *table
	// chosen is the cell of /cells/N, or nil.
	chosen *cells.Cell
	held   bool // a place in reading
}

type nodesKey struct{}

// chosenCell is a RoundTripper that sends a request to the nodes that are in the request's context.
type chosenCell struct{}

func (chosenCell) RoundTrip(r *http.Request) (*http.Response, error) {
	return r.Context().Value(nodesKey{}).(*nodes).RoundTrip(r)
}

// send passes a request on to a node, and the reply back to the client.
func (p *Proxy) send(w http.ResponseWriter, r *http.Request, to *nodes) {
	p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), nodesKey{}, to)))
}

// fail replies to a request that no node of its cell has served.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has hung up
	}
	p.refuse(w, r, unserved(r, err))
}

// unserved returns the refusal of a request that no node has served.
func unserved(r *http.Request, err error) error {
	var known *exchange.Problem
	var attempt *attemptError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &attempt) && attempt.sent && !isSafe(r):
		return exchange.NewProblem("outcome-unknown", "The connection to the node ended before its reply. The request may have been carried out: "+
			"repeat it with the same Idempotency-Key, or read the state.")
	}
	return exchange.NewProblem("not-applied", "No node of the cell could be reached. The request had no effect; try again.")
}

// refuse sends a refusal in the native form. To Consul's clients it sends 500 in place of, for example, 503: at 500 they
// repeat the request, at 503 they believe that they have lost their lock.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, err error) {
	problem := exchange.ProblemOf(err)
	id := r.Header.Get(exchange.HeaderRequest)
	problem.Instance = "/requests/" + id
	header := w.Header()
	header.Set(exchange.HeaderRequest, id)
	problem.SetRetryAfter(header)
	if problem.Status > http.StatusInternalServerError && isConsul(r.URL.Path) {
		http.Error(w, problem.Detail, http.StatusInternalServerError)
		return
	}
	body, err := json.Marshal(problem)
	if err != nil { // impossible: a problem has texts and numbers
		panic(err)
	}
	header.Set("Content-Type", "application/problem+json")
	header.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(problem.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(body, '\n')) // the client's matter
	}
}
