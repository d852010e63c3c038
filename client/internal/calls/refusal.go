package calls

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Code is the code of a refusal as an error, for example "unknown-semaphore".
type Code string

// Error returns the code in words.
func (c Code) Error() string { return strings.ReplaceAll(string(c), "-", " ") }

var (
	// ErrUnreachable ends a call that no node has replied to, or that no node could
	// carry out.
	ErrUnreachable = errors.New("no node replied")
	// ErrOutcomeUnknown ends a call that may have been carried out or not.
	ErrOutcomeUnknown error = Code("outcome-unknown")
	// ErrHeld ends a call with Until if a node has not replied within its share of the time, perhaps because it holds
	// the request.
	ErrHeld = errors.New("no reply yet")
)

var (
	// errSilent ends an attempt at a node that takes too long.
	errSilent = errors.New("the node did not reply in time")
	// errUnconnected is errSilent for a request that had no connection yet, and so was not sent.
	errUnconnected = fmt.Errorf("%w: no connection (%w)", errSilent, errUnsent)
)

// Refusal is a reply with a status of 300 or more. It wraps the error that
// Config.Refused makes for users, and has that error's text.
type Refusal struct {
	Status     int
	Code       Code   // "" if a proxy made the reply
	Rule       string // the limit, or the rule of the lock hierarchy
	RetryAfter time.Duration
	Address    string // address of the node
	Document   []byte // the problem document (RFC 9457); nil without a Code
	Text       string // the beginning of a body that is no problem document

	users error
}

// Error returns the text of the users' error.
func (e *Refusal) Error() string { return e.users.Error() }

// Unwrap returns the users' error.
func (e *Refusal) Unwrap() error { return e.users }

// newRefusal reads a refusal. A reply that is not a problem document of Signalbox gets an empty code, so that the 404
// of a proxy is not taken for the end of a session.
func (c *Caller) newRefusal(header http.Header, r *Reply) *Refusal {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	e := &Refusal{RetryAfter: retryAfter(header.Get("Retry-After"))}
	if strings.TrimSpace(kind) == "application/problem+json" {
		e.readProblem(r)
	}
	return c.finish(e, r)
}

// memberRefusal reads the refusal of one member of a shared request. It derives RetryAfter as nodes do, because a
// member has no headers.
func (c *Caller) memberRefusal(r *Reply) *Refusal {
	e := &Refusal{}
	availableIn := e.readProblem(r)
	switch {
	case availableIn != nil:
		e.RetryAfter = time.Duration((*availableIn+999)/1000) * time.Second
	case e.Code == "storage-full" || e.Code == "states-differ":
		e.RetryAfter = 10 * time.Second
	case e.Code == "unavailable" || r.Status == http.StatusServiceUnavailable || r.Status == http.StatusTooManyRequests:
		e.RetryAfter = time.Second
	}
	return c.finish(e, r)
}

// readProblem reads a problem document, and returns its available_in_ms.
func (e *Refusal) readProblem(r *Reply) (availableIn *int64) {
	var document struct {
		Code        Code
		Rule        string
		AvailableIn *int64 `json:"available_in_ms"`
	}
	if json.Unmarshal(r.Body, &document) == nil {
		e.Code, e.Rule, e.Document = document.Code, document.Rule, r.Body
	}
	return document.AvailableIn
}

func (c *Caller) finish(e *Refusal, r *Reply) *Refusal {
	e.Status, e.Address = r.Status, r.Node.String()
	if e.Document == nil {
		e.Text = excerpt(string(r.Body))
	}
	e.users = c.cfg.Refused(e)
	return e
}

// noEffect reports whether the refusal proves that the call had no effect. The refusal of a proxy is no proof.
func (e *Refusal) noEffect() bool {
	switch e.Code {
	case "no-leader", "not-leader", "behind", "not-applied", "draining", "storage-full", "overloaded", "states-differ", "limit-reached", "unauthenticated", "forbidden":
		return true
	}
	return e.isPlain()
}

// isPlain reports whether the request was in plain HTTP and the node accepts only HTTPS. The node's HTTP server makes
// this reply before any handler runs.
func (e *Refusal) isPlain() bool {
	return e.Status == http.StatusBadRequest && e.Code == "" && strings.HasPrefix(e.Text, "Client sent an HTTP request to an HTTPS server")
}

// ofNode reports whether the refusal comes from a limit, a token file or a port of the node itself, so that another
// node may accept the call.
func (e *Refusal) ofNode() bool {
	if e.Code == "unauthenticated" || e.isPlain() {
		return true
	}
	switch e.Rule {
	case "connections", "body-memory", "reply-memory", "watchers":
		return e.Code == "limit-reached"
	}
	return false
}

// final reports whether the state machine made the refusal. Only such a refusal is recorded under the key, as the
// outcome of the first attempt.
func (e *Refusal) final() bool {
	switch e.Status {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed, http.StatusUnprocessableEntity:
		return e.Code != ""
	}
	return false
}

// AskedFor returns the RetryAfter of a refusal, or 0.
func AskedFor(err error) time.Duration {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal.RetryAfter
	}
	return 0
}

// excerpt returns the beginning of the body of a reply that a node did not make.
func excerpt(text string) string {
	const limit = 200
	text = strings.TrimSpace(text)
	if len(text) <= limit {
		return text
	}
	text = text[:limit]
	for !utf8.ValidString(text) && len(text) > limit-utf8.UTFMax {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// maxRetryAfter bounds, in seconds, how long a Retry-After is respected.
const maxRetryAfter = 60

// retryAfter reads the seconds of a Retry-After header. It ignores a date, because nodes don't send one, and it would
// need synchronised wall clocks.
func retryAfter(text string) time.Duration {
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, maxRetryAfter)) * time.Second
}
