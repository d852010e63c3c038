package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

var (
	// ErrNoToken refuses a request without a token and without a certificate of the file.
	ErrNoToken = errors.New("the request has no token")
	// ErrUnknownToken refuses a request whose token is not, or no longer, in the file.
	ErrUnknownToken = errors.New("the token is not valid")
)

// Credential is a valid token or a certificate's name. It ends when a later file does not have it, or
// gives it other rights.
type Credential struct {
	Identity *Identity
	hash     hash
	ended    context.Context
	end      context.CancelCauseFunc
}

// Ended returns a context that ends, with ErrUnknownToken, when the credential does.
func (c *Credential) Ended() context.Context { return c.ended }

// table is the content of one file. It never changes.
type table struct {
	tokens []*Credential          // by hash
	names  map[string]*Credential // of certificates
}

// Tokens are the identities of a file, as it is on the disk.
type Tokens struct {
	path      string
	reloading sync.Mutex
	file      string // its content at the last Reload; reloading guards it
	current   atomic.Pointer[table]
	broken    atomic.Bool // the file on the disk can't be used
	refused   *prometheus.CounterVec
}

// None returns the tokens of a node that has no file, for its metrics.
func None() *Tokens {
	t := newTokens("")
	t.current.Store(&table{})
	return t
}

// Open reads a file of tokens. The error names the file, and the line or the token.
func Open(path string) (*Tokens, error) {
	t := newTokens(path)
	if err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

func newTokens(path string) *Tokens {
	t := &Tokens{path: path, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_http_denied_total",
		Help: "Requests refused for want of a valid token, of a scope, of a prefix, or by an identity's rate.",
	}, []string{"reason"})}
	for _, reason := range []string{"no-token", "unknown-token", "scope", "prefix", "rate"} {
		t.refused.WithLabelValues(reason)
	}
	return t
}

// Reload reads the file again. On an error the identities in use stay. Tokens and names that the file no
// longer has, or with other rights, end.
func (t *Tokens) Reload() error {
	t.reloading.Lock()
	defer t.reloading.Unlock()
	text, err := contentOf(t.path)
	var grants []grant
	if err == nil {
		if grants, err = parse(text); err != nil {
			err = fmt.Errorf("%s: %w", t.path, err)
		}
	}
	t.file = text
	t.broken.Store(err != nil)
	if err != nil {
		return err
	}
	last := t.current.Load()
	if last == nil {
		last = &table{}
	}
	next := last.followedBy(grants)
	t.current.Store(next)
	last.endOthers(next)
	return nil
}

// followedBy returns the table of a file. Credentials and identities that are the same as in the last table
// are kept: their requests go on, and their rates are not refilled.
func (known *table) followedBy(grants []grant) *table {
	next := &table{names: map[string]*Credential{}}
	for _, g := range grants {
		name := next.names[g.identity.Name]
		if name == nil {
			if name = known.names[g.identity.Name]; name == nil || !name.Identity.equal(g.identity) {
				name = newCredential(g.identity.limited(), hash{})
			}
			next.names[g.identity.Name] = name
		}
		if !g.hashed {
			continue
		}
		at := slices.IndexFunc(known.tokens, func(c *Credential) bool { return c.hash == g.hash && c.Identity == name.Identity })
		if at >= 0 {
			next.tokens = append(next.tokens, known.tokens[at])
		} else {
			next.tokens = append(next.tokens, newCredential(name.Identity, g.hash))
		}
	}
	return next
}

// limited returns a copy of a new identity with its rate and its count of watchers.
func (id *Identity) limited() *Identity {
	limited := *id
	limited.watching = new(atomic.Int64)
	if id.PerSecond > 0 {
		limited.rate = rate.NewLimiter(rate.Limit(id.PerSecond), int(id.PerSecond))
	}
	return &limited
}

func newCredential(id *Identity, sum hash) *Credential {
	ended, end := context.WithCancelCause(context.Background())
	return &Credential{id, sum, ended, end}
}

// endOthers ends the credentials that the next table does not have.
func (known *table) endOthers(next *table) {
	for _, c := range known.tokens {
		if !slices.Contains(next.tokens, c) {
			c.end(ErrUnknownToken)
		}
	}
	for name, c := range known.names {
		if next.names[name] != c {
			c.end(ErrUnknownToken)
		}
	}
}

// watchEvery is how often the file is checked.
const watchEvery = time.Second

// Watch reloads the file at each signal on now, and when two checks in a row find the same change, so that
// a file that is being written does not end tokens; until ctx ends. It calls reloaded after each reload,
// with the reason if the file can't be used.
func (t *Tokens) Watch(ctx context.Context, now <-chan os.Signal, reloaded func(error)) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	found := t.inUse()
	for {
		select {
		case <-ctx.Done():
			return
		case <-now:
			reloaded(t.Reload())
		case <-ticker.C:
			last := found
			if found, _ = contentOf(t.path); found == last && found != t.inUse() {
				reloaded(t.Reload())
			}
		}
	}
}

func (t *Tokens) inUse() string {
	t.reloading.Lock()
	defer t.reloading.Unlock()
	return t.file
}

// Authenticate returns the credential of a request: its token, or without one its certificate, which the
// server has verified in the handshake. If there is a token, it must be valid.
func (t *Tokens) Authenticate(r *http.Request) (*Credential, error) {
	in := t.current.Load()
	token, present := tokenOf(r)
	if present && token == "" {
		return nil, ErrUnknownToken
	}
	if present {
		return in.tokenOf(sha256.Sum256([]byte(token)))
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		if found := in.names[r.TLS.PeerCertificates[0].Subject.CommonName]; found != nil {
			return found, nil
		}
	}
	return nil, ErrNoToken
}

// tokenOf finds a token by its hash, in a time that depends on neither.
func (known *table) tokenOf(sum hash) (found *Credential, err error) {
	for _, c := range known.tokens {
		if subtle.ConstantTimeCompare(c.hash[:], sum[:]) == 1 {
			found = c
		}
	}
	if found == nil {
		return nil, ErrUnknownToken
	}
	return found, nil
}

// tokenOf returns the token that a request carries: after Bearer, as the password of Basic, or as its user
// name if the password is empty. For an unreadable header, the token is empty and present.
func tokenOf(r *http.Request) (token string, present bool) {
	headers := r.Header["Authorization"]
	if len(headers) == 0 {
		return "", false
	}
	if len(headers) > 1 {
		return "", true
	}
	if scheme, rest, _ := strings.Cut(headers[0], " "); strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(rest), true
	}
	name, password, _ := r.BasicAuth()
	if password == "" {
		return name, true
	}
	return password, true
}

// ErrRate refuses a request beyond the rate of its identity.
var ErrRate = errors.New("too many requests of this identity")

// Count counts a refusal by an error of this package.
func (t *Tokens) Count(err error) {
	reason := "scope"
	var denied *Denied
	switch {
	case errors.Is(err, ErrNoToken):
		reason = "no-token"
	case errors.Is(err, ErrUnknownToken):
		reason = "unknown-token"
	case errors.Is(err, ErrRate):
		reason = "rate"
	case errors.As(err, &denied) && (denied.Semaphore != "" || denied.AllNames):
		reason = "prefix"
	}
	t.refused.WithLabelValues(reason).Inc()
}

// Collectors returns the metrics of the tokens.
func (t *Tokens) Collectors() []prometheus.Collector {
	return []prometheus.Collector{t.refused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "signalbox_tokens",
			Help: "Tokens that are valid on this node.",
		}, func() float64 { return float64(len(t.current.Load().tokens)) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "signalbox_tokens_file_broken",
			Help: "1 if the file of tokens can't be used and the one before it stays in use.",
		}, func() float64 {
			if t.broken.Load() {
				return 1
			}
			return 0
		}),
	}
}
