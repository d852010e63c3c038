package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/audit"
	"github.com/signalbox/signalbox/internal/wake"
)

// DefaultReplyMemory is the default of Config.ReplyMemory, in bytes.
const DefaultReplyMemory = 128 << 20

// Config is the configuration of an Exchange. Zero members get their defaults; only
// Node is required.
type Config struct {
	Node   Node
	Logger hclog.Logger   // nil: no log
	Tokens *access.Tokens // nil: every request may do everything
	Audit  *audit.Log     // nil: none

	BodyBytes   int64         // the most bytes of a body; default 64 KiB
	MaxWait     time.Duration // the longest wait of one request; default 10 minutes
	BodyTimeout time.Duration // for a body to arrive, and for a client to take a reply; default 20 s
	BodyMemory  int64         // the most bytes of all bodies that are arriving; default 64 MiB
	ReplyMemory int64         // the most bytes of all replies that clients have not taken; default 128 MiB
	MaxWatchers int           // the most requests that follow events or wait for a change; default 10,000
}

// Exchange reads requests and sends replies for all APIs of one node. It is safe for
// concurrent use.
type Exchange struct {
	Config Config // complete; not to be changed
	Node   Node   // does for each request what its identity may do

	seen      atomic.Uint64 // the highest index of all replies so far
	bodies    *bodies       // that are arriving
	bodySpace *budget       // of arriving bodies
	replies   *budget       // of replies that clients have not taken
	makers    makers        // of large replies
	watchers  watchers

	closing   chan struct{} // closed when long waits are to end
	closeOnce sync.Once
}

// WithDefaults returns the configuration with the defaults of its zero limits.
func (cfg Config) WithDefaults() Config {
	SetDefault(&cfg.BodyBytes, 64<<10)
	SetDefault(&cfg.MaxWait, 10*time.Minute)
	SetDefault(&cfg.BodyTimeout, 20*time.Second)
	SetDefault(&cfg.BodyMemory, 64<<20)
	SetDefault(&cfg.ReplyMemory, DefaultReplyMemory)
	SetDefault(&cfg.MaxWatchers, 10_000)
	return cfg
}

// New returns an Exchange over cfg.Node, or an error if there is no node.
func New(cfg Config) (*Exchange, error) {
	if cfg.Node == nil {
		return nil, errors.New("exchange: a node is needed")
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	cfg.Logger = cfg.Logger.Named("http")
	cfg = cfg.WithDefaults()
	node := cfg.Node
	if cfg.Tokens != nil {
		node = &guarded{node, node, cfg.Tokens}
	}
	if cfg.Audit != nil {
		node = &audited{node, node, cfg.Audit}
	}
	closing := make(chan struct{})
	return &Exchange{Config: cfg, Node: node, closing: closing, makers: make(makers, 2*runtime.GOMAXPROCS(0)),
		bodies: &bodies{open: map[*http.ResponseController]struct{}{}}, bodySpace: &budget{most: cfg.BodyMemory},
		replies: &budget{most: cfg.ReplyMemory}, watchers: watchers{most: int64(cfg.MaxWatchers), share: wake.NewShare(closing)}}, nil
}

// SetDefault replaces a configured value that was not given.
func SetDefault[T int | int64 | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// Begin sets the headers that every reply has, at the latest when the reply is sent.
func (x *Exchange) Begin(c echo.Context) {
	response := c.Response()
	response.Header().Set("Cache-Control", "no-store")
	response.Before(func() {
		x.indexOfNode(c)
		leaveBody(c)
		x.TimeWrites(response)
	})
}

// End releases the memory that a request holds. It runs after the reply is sent.
func (x *Exchange) End(c echo.Context) {
	lingerOver(c)
	x.DoneWithBody(c)
}

// TimeWrites gives the client BodyTimeout to take the reply, counted from the reply's
// beginning; a WriteTimeout of the server would count the wait before it. net/http
// removes the deadline before the next request. It does nothing on a connection
// without deadlines, as in tests.
func (x *Exchange) TimeWrites(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(x.Config.BodyTimeout))
}

// CutOff breaks off the connection of a reply that has begun and must not look whole: its
// last bytes can't be written any more.
func (x *Exchange) CutOff(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
}

// EndWaits closes Closing, and gives bodies that are still arriving a last second. It
// does not block and may be called more than once.
func (x *Exchange) EndWaits() {
	x.closeOnce.Do(func() {
		close(x.closing)
		x.bodies.end()
	})
}

// Closing returns a channel that is closed when the server shuts down and long waits
// have to end.
func (x *Exchange) Closing() <-chan struct{} { return x.closing }

// Closed reports whether Closing is closed.
func (x *Exchange) Closed() bool {
	select {
	case <-x.closing:
		return true
	default:
		return false
	}
}

// Collectors returns the metrics of the memory that bodies and replies take, of the
// tokens and of the audit log.
func (x *Exchange) Collectors() []prometheus.Collector {
	gauge := func(name, help string, of *budget) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(of.used.Load()) })
	}
	tokens := x.Config.Tokens
	if tokens == nil {
		tokens = access.None()
	}
	log := x.Config.Audit
	if log == nil {
		log = audit.None()
	}
	return append(slices.Concat(tokens.Collectors(), log.Collectors()),
		gauge("signalbox_http_body_bytes", "What bodies that are being received take, beyond the first 4 KiB of each.", x.bodySpace),
		gauge("signalbox_http_reply_bytes", "What replies that clients have not taken yet take, beyond the first 16 KiB of each.", x.replies))
}

// Reading waits until this node's state is as recent as the query requires. A stale
// read also gets the header with its age.
func (x *Exchange) Reading(c echo.Context, q Query) (cluster.Reading, error) {
	asked, err := q.consistency()
	if err != nil {
		return cluster.Reading{}, err
	}
	reading, err := x.Node.Read(c.Request().Context(), asked)
	if errors.Is(err, outcome.ErrBehind) {
		p := ProblemOf(err)
		x.View(c, func(m *fsm.Machine) {
			index := m.Index()
			p.Index = &index
		})
		return reading, p
	}
	if err == nil && reading.Stale {
		ms := int64(-1) // never heard from a leader
		if reading.LastContact >= 0 {
			ms = reading.LastContact.Milliseconds()
		}
		c.Response().Header().Set(HeaderLastContact, strconv.FormatInt(ms, 10))
	}
	return reading, err
}

// View calls read with the state, and sets the header with the state's index. read
// must not block, and must not keep the machine.
func (x *Exchange) View(c echo.Context, read func(m *fsm.Machine)) {
	var index uint64
	x.Node.View(func(m *fsm.Machine) {
		index = m.Index()
		read(m)
	})
	x.SetIndex(c, index)
}

// NowOf returns the cluster time from which durations are computed. The state may
// have advanced since the reading, so it is never earlier than the state's own time.
func NowOf(m *fsm.Machine, reading cluster.Reading) int64 { return max(reading.NowMS, m.NowMS()) }

const (
	// HeaderIndex is the header with the index of the state that a reply reflects.
	HeaderIndex = "X-Signalbox-Index"
	// HeaderLastContact is the header with the age of a stale read; -1 is unknown.
	HeaderLastContact = "X-Signalbox-Last-Contact-Ms"
	// HeaderNotice is the header with the id of the notice that a refused request left.
	HeaderNotice = "X-Signalbox-Notice"
	// StatusGone is the status that metrics count for a client that hung up.
	StatusGone = 499
)

// SendJSON sends a reply that reports the outcome of a request. It is never refused,
// whatever its size.
func (x *Exchange) SendJSON(c echo.Context, status int, body any) error {
	contentType := "application/json"
	if _, is := body.(*Problem); is {
		contentType = "application/problem+json"
	}
	out, release := Buffer()
	defer release()
	if err := writeJSON(out, body); err != nil {
		return err
	}
	bytes := countedReply(out.Bytes())
	x.replies.insist(bytes)
	defer x.replies.give(bytes)
	return x.Send(c, status, contentType, out.Bytes())
}

// SendRead sends the reply to a read, or refuses it if the replies that clients have
// not taken leave no room. build looks at the state and returns the body; it must not
// block.
func (x *Exchange) SendRead(c echo.Context, build func() (any, error)) error {
	out, release := Buffer()
	defer release()
	if err := x.make(c.Request().Context(), out, build); err != nil {
		return err
	}
	bytes := countedReply(out.Bytes())
	if !x.replies.take(bytes) {
		return x.replies.full("reply-memory", "large replies", "max-reply-memory")
	}
	defer x.replies.give(bytes)
	return x.Send(c, http.StatusOK, "application/json", out.Bytes())
}

// BeginLarge blocks until this request may build a large reply, or fails with ctx's error if the client hangs up
// first. EndLarge must follow, before the reply is sent.
func (x *Exchange) BeginLarge(ctx context.Context) error { return x.makers.begin(ctx) }

// EndLarge lets the next request build a large reply.
func (x *Exchange) EndLarge() { x.makers.end() }

// make builds a reply and writes its JSON into an empty buffer.
func (x *Exchange) make(ctx context.Context, out *bytes.Buffer, build func() (any, error)) error {
	if err := x.BeginLarge(ctx); err != nil {
		return err
	}
	defer x.EndLarge()
	body, err := build()
	if err != nil {
		return err
	}
	return writeJSON(out, body)
}

// ReplyRoom returns a refusal while the replies that clients have not taken exceed
// their budget. A request that changes something asks before it does so, since its
// reply can't be refused later.
func (x *Exchange) ReplyRoom() error {
	if x.replies.over() {
		return x.replies.full("reply-memory", "large replies", "max-reply-memory")
	}
	return nil
}

// ReserveReply reserves room for a reply of about so many bytes, before it is built.
// ReleaseReply needs the result.
func (x *Exchange) ReserveReply(bytes int64) (reserved int64, ok bool) {
	reserved = max(0, bytes-freeReplyBytes)
	return reserved, x.replies.take(reserved)
}

// ReleaseReply releases what ReserveReply reserved.
func (x *Exchange) ReleaseReply(reserved int64) { x.replies.give(reserved) }

// countedReply is the part of a reply that counts for the budget.
func countedReply(data []byte) int64 { return max(0, int64(len(data))-freeReplyBytes) }

// Send sends a whole reply. It returns nil, also if the client does not take the
// reply.
func (x *Exchange) Send(c echo.Context, status int, contentType string, data []byte) error {
	response := c.Response()
	response.Header().Set("Content-Type", contentType)
	response.Header().Set("Content-Length", strconv.Itoa(len(data)))
	response.WriteHeader(status)
	if _, err := response.Write(data); err != nil {
		x.Config.Logger.Debug("reply not delivered", Named(c, "error", err)...)
	}
	return nil
}

// SendText sends a text.
func (x *Exchange) SendText(c echo.Context, status int, text string) error {
	return x.Send(c, status, "text/plain; charset=utf-8", []byte(text))
}

// SetIndex sets the header with the index that a reply reflects; of several calls the
// highest index counts.
func (x *Exchange) SetIndex(c echo.Context, index uint64) {
	header := c.Response().Header()
	if before, err := strconv.ParseUint(header.Get(HeaderIndex), 10, 64); err == nil && before >= index {
		return
	}
	header.Set(HeaderIndex, strconv.FormatUint(index, 10))
	for {
		seen := x.seen.Load()
		if seen >= index || x.seen.CompareAndSwap(seen, index) {
			return
		}
	}
}

// SetSeenIndex sets the highest index of all replies so far, for a reply that does
// not look at the state.
func (x *Exchange) SetSeenIndex(c echo.Context) { x.SetIndex(c, x.seen.Load()) }

// indexOfNode sets the index of this node's state, for a reply that has no index yet.
func (x *Exchange) indexOfNode(c echo.Context) {
	if c.Response().Header().Get(HeaderIndex) != "" {
		return
	}
	var index uint64
	x.Node.View(func(m *fsm.Machine) { index = m.Index() })
	x.SetIndex(c, index)
}

// Fail sends the reply to a request that failed with err: a problem.
func (x *Exchange) Fail(c echo.Context, err error) {
	if HungUp(c, err) {
		_ = c.NoContent(StatusGone)
		return
	}
	p := *x.Problem(c, err)
	p.Instance = requestPath(c)
	header := c.Response().Header()
	header.Del("Location")
	header.Del("ETag") // of a reply that was not sent
	p.SetRetryAfter(header)
	if err := x.SendJSON(c, p.Status, &p); err != nil {
		x.Config.Logger.Error("problem not rendered", Named(c, "error", err)...)
	}
}

// HungUp reports whether a request failed because its client hung up.
func HungUp(c echo.Context, err error) bool {
	return errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil
}

// Problem translates an error into a problem. It logs an error that is a fault of
// this program, because the reply does not show it.
func (x *Exchange) Problem(c echo.Context, err error) *Problem {
	p := ProblemOf(err)
	if p.Code == "internal" && !errors.Is(err, ErrInternal) {
		x.Config.Logger.Error("request failed", Named(c, "method", c.Request().Method, "route", c.Path(), "error", err)...)
	}
	return p
}

// requestPath returns the path that stands for a request in problems, by its id. It is
// not served.
func requestPath(c echo.Context) string {
	return "/requests/" + url.PathEscape(RequestID(c))
}

// Pairs is metadata as a JSON object, in the order of its keys.
type Pairs []fsm.Pair

// MarshalJSON writes {"key":"value",…}.
func (pairs Pairs) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, p := range pairs {
		if i > 0 {
			out = append(out, ',')
		}
		out = AppendText(out, p.Key)
		out = append(out, ':')
		out = AppendText(out, p.Value)
	}
	return append(out, '}'), nil
}

// AppendText appends a quoted text. It does not escape <, > and &, as JavaScript does
// not either.
func AppendText(out []byte, text string) []byte {
	quoted, release := Buffer()
	defer release()
	_ = writeJSON(quoted, text) // a string can always be encoded
	return append(out, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled is the largest buffer that is kept for later replies.
const maxPooled = 1 << 20

// Buffer returns an empty buffer for use until release is called.
func Buffer() (b *bytes.Buffer, release func()) {
	b = buffers.Get().(*bytes.Buffer)
	b.Reset()
	return b, func() {
		if b.Cap() <= maxPooled {
			buffers.Put(b)
		}
	}
}

func writeJSON(to *bytes.Buffer, body any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(body)
}

// budget bounds the memory that concurrent requests may take together. It is safe for
// concurrent use.
type budget struct {
	most int64
	used atomic.Int64
}

// take reserves all of the bytes and reports whether there was room. 0 bytes always
// fit, even after insist exceeded the budget.
func (b *budget) take(bytes int64) bool {
	if bytes == 0 || b.used.Add(bytes) <= b.most {
		return true
	}
	b.used.Add(-bytes)
	return false
}

// insist reserves bytes even without room, for a reply that can no longer be refused.
func (b *budget) insist(bytes int64) { b.used.Add(bytes) }

// over reports whether more bytes are reserved than the budget has.
func (b *budget) over() bool { return b.used.Load() > b.most }

// give releases reserved bytes.
func (b *budget) give(bytes int64) { b.used.Add(-bytes) }

// full returns the refusal of a request for which the budget has no room.
func (b *budget) full(rule, what, flag string) *Problem {
	p := NewProblem("limit-reached", "This node has no room for more "+what+" at the moment (--"+flag+"). Nothing was done; try again later, or at another node.")
	most := b.most
	p.Rule, p.Limit = rule, &most
	return p
}

const (
	// freeBodyBytes of each body and freeReplyBytes of each reply do not count for the
	// budgets, so that a full budget stops no small request. The number of connections
	// bounds them.
	freeBodyBytes  = 4 << 10
	freeReplyBytes = 16 << 10
)

// makers bounds how many large replies are built at a time. Building one takes a
// processor and several times the reply's memory, and never waits for a client; so
// more at a time would cost memory and save no time.
type makers chan struct{}

// begin waits for a turn, or returns ctx's error if the client hangs up first.
func (m makers) begin(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m makers) end() { <-m }
