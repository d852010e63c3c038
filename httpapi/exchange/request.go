package exchange

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/strictjson"
)

const (
	nameForm    = "1 to 512 bytes of UTF-8 without control characters"
	sessionForm = "a session id: a decimal number from 1 to 18446744073709551615"
)

// HeaderRequest is the header with the id of a request, in the request and in its reply.
const HeaderRequest = "X-Request-Id"

const maxRequestID = 128 // bytes of an id from a client

// NameRequest gives a request and its reply an id, and returns the id. It is the client's id if that is up to 128
// visible ASCII characters, otherwise a random id.
func NameRequest(c echo.Context) (id string) {
	id = c.Request().Header.Get(HeaderRequest)
	visible := !strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' })
	if id == "" || len(id) > maxRequestID || !visible {
		var drawn [8]byte
		_, _ = rand.Read(drawn[:]) // never fails
		id = hex.EncodeToString(drawn[:])
	}
	c.Response().Header().Set(HeaderRequest, id)
	return id
}

// RequestID returns the id that NameRequest has set.
func RequestID(c echo.Context) string { return c.Response().Header().Get(HeaderRequest) }

const traceKey = "trace"

// SetTrace sets the id of the trace to which a request belongs, for LogPairs.
func SetTrace(c echo.Context, id string) { c.Set(traceKey, id) }

// LogPairs returns key-value pairs for a log line: more, the request's id and, if the request is traced, the trace's id.
func LogPairs(c echo.Context, more ...any) []any {
	more = append(more, "request", RequestID(c))
	if trace := c.Get(traceKey); trace != nil {
		more = append(more, "trace", trace)
	}
	return more
}

// CanonicalPath decodes and encodes each segment of a path, so that equal paths have the same spelling before the
// routing. Otherwise echo would route /%41 differently from /A. Only a path with an unusual encoding has a RawPath, so
// most requests pass unchanged.
func CanonicalPath(r *http.Request) {
	if r.URL.RawPath == "" {
		return
	}
	segments := strings.Split(r.URL.RawPath, "/")
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return // impossible, because net/http has parsed the path
		}
		segments[i] = url.PathEscape(plain)
	}
	r.URL.RawPath = strings.Join(segments, "/")
}

// PathParam returns a path parameter, decoded exactly once. If there is no RawPath, net/http has decoded it already.
func PathParam(c echo.Context, name string) (string, bool) {
	text := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return text, true
	}
	plain, err := url.PathUnescape(text)
	return plain, err == nil
}

// SlashesCount is a middleware that refuses a path with more segments than its route, because echo lets the last
// parameter of a route match slashes. A slash inside a name is written %2F and does not count.
func SlashesCount(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if SlashesDiffer(c) {
			return ErrUnknownRoute
		}
		return next(c)
	}
}

// SlashesDiffer reports whether a path and its route have different numbers of segments. A route that ends in * may
// have any number.
func SlashesDiffer(c echo.Context) bool {
	return !strings.HasSuffix(c.Path(), "*") && strings.Count(echo.GetPath(c.Request()), "/") != strings.Count(c.Path(), "/")
}

// SemaphoreName checks the name of a semaphore from a path, a query or a body.
func SemaphoreName(field, name string) (string, error) {
	if !fsm.ValidName(name) {
		return "", Invalid(field, "The name of a semaphore is "+nameForm+".")
	}
	return name, nil
}

// ItemName checks the name of an item from a path, a query or a body.
func ItemName(field, name string) (string, error) {
	if !fsm.ValidName(name) {
		return "", Invalid(field, "The name of an item is "+nameForm+".")
	}
	return name, nil
}

// SessionID reads a session id from a path, a query or a body. An id has no sign and no leading zeros.
func SessionID(field, text string) (uint64, error) {
	id, ok := ParseDigits(text)
	if !ok || id == 0 {
		return 0, Invalid(field, "This is not "+sessionForm+".")
	}
	return id, nil
}

// ParseDigits reads an unsigned decimal number without leading zeros.
func ParseDigits(text string) (uint64, bool) {
	if text == "" || len(text) > 20 || text[0] == '+' || text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// FormatSession returns a session id as a decimal text.
func FormatSession(id uint64) string { return strconv.FormatUint(id, 10) }

// SemaphorePath returns the path of a semaphore in the native API.
func SemaphorePath(name string) string { return "/v1/semaphores/" + segmentOf(name) }

// ItemPath returns the path of an item in the native API.
func ItemPath(name string) string { return "/v1/items/" + segmentOf(name) }

// segmentOf encodes a name for a path. It also encodes the names "." and "..", because clients would resolve such
// segments.
func segmentOf(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// SessionPath returns the path of a session in the native API.
func SessionPath(id uint64) string { return "/v1/sessions/" + FormatSession(id) }

// IdempotencyKey returns the key of a request, "" without one.
func IdempotencyKey(header http.Header) (string, error) {
	keys, present := header["Idempotency-Key"]
	if !present {
		return "", nil
	}
	return CheckKey("Idempotency-Key", strings.Join(keys, " ")) // several keys are refused, because a key can't have a space
}

// CheckKey returns key, or a refusal if key is not a valid idempotency key.
func CheckKey(field, key string) (string, error) {
	ok := len(key) >= 16 && len(key) <= 128
	for i := range len(key) {
		ok = ok && key[i] > ' ' && key[i] <= '~'
	}
	if !ok {
		return "", Invalid(field, "An idempotency key is 16 to 128 visible ASCII characters.")
	}
	return key, nil
}

// DurationForm tells, in a refusal, which forms a duration may have.
const DurationForm = `a duration such as "30s", "1m30s" or "250ms", or an integer of milliseconds`

// ParseDuration reads a duration such as "1m30s" into milliseconds. It rounds up, so that no lease or wait ends too
// early. ok is false for a sign, for a number without a unit (except 0), and above limitMS.
func ParseDuration(text string, limitMS int64) (ms int64, ok bool) {
	if text == "" || len(text) > 64 || strings.ContainsAny(text, "+-") {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, false
	}
	ms = int64(d / time.Millisecond)
	if d%time.Millisecond != 0 {
		ms++
	}
	return ms, ms <= limitMS
}

// JSONDuration reads a duration from a body: a text with units, or a number of milliseconds.
func JSONDuration(v strictjson.Value, limitMS int64) (ms int64, ok bool) {
	if text, isText := v.Text(); isText {
		return ParseDuration(text, limitMS)
	}
	ms, ok = v.Integer()
	return ms, ok && ms >= 0 && ms <= limitMS
}

// QueryDuration reads a duration from a query, in the same forms as in a body, without quotes.
func QueryDuration(text string, limitMS int64) (ms int64, ok bool) {
	if n, isNumber := ParseDigits(text); isNumber {
		return int64(n), n <= uint64(limitMS)
	}
	return ParseDuration(text, limitMS)
}

// BadWait returns the refusal of a wait that is not between 0 and limitMS.
func BadWait(limitMS int64) error {
	longest := (time.Duration(limitMS) * time.Millisecond).String()
	return Invalid("wait", "A wait is "+DurationForm+", from 0 to "+longest+".")
}

// ModeName returns the name of a mode. A request for one semaphore has the mode "all".
func ModeName(m fsm.Mode) string {
	if m == fsm.Any {
		return "any"
	}
	return "all"
}

// Query is the query of a request. An unknown or repeated parameter is refused, because to ignore it could lose a
// restriction, for example ?epoch=.
type Query map[string][]string

// ParseQuery reads the query of a route that takes the named parameters.
func ParseQuery(c echo.Context, names ...string) (Query, error) {
	return ParseRepeatable(c, "", names...)
}

// ParseRepeatable is ParseQuery for a route with one repeatable parameter.
func ParseRepeatable(c echo.Context, repeatable string, names ...string) (Query, error) {
	raw := c.Request().URL.RawQuery
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, Invalid("", "The query can't be read: check its percent-encoding.")
	}
	for name, texts := range values {
		if !slices.Contains(names, name) {
			return nil, Invalid(name, "This route does not know this query parameter.")
		}
		if len(texts) > 1 && name != repeatable {
			return nil, Invalid(name, "This query parameter is given more than once.")
		}
	}
	return Query(values), nil
}

// Text returns a parameter, and whether the query has it.
func (q Query) Text(name string) (string, bool) {
	texts, ok := q[name]
	if !ok {
		return "", false
	}
	return texts[0], true
}

// Number returns a parameter between low and high, or absent if the query does not have it.
func (q Query) Number(name string, absent, low, high uint64) (uint64, error) {
	text, ok := q.Text(name)
	if !ok {
		return absent, nil
	}
	n, ok := ParseDigits(text)
	if !ok || n < low || n > high {
		return 0, Invalid(name, fmt.Sprintf("This is not a whole number from %d to %d.", low, high))
	}
	return n, nil
}

// Flag returns a parameter that is true or false; false if the query does not have it.
func (q Query) Flag(name string) (bool, error) {
	text, ok := q.Text(name)
	if !ok || text == "false" {
		return false, nil
	}
	if text != "true" {
		return false, Invalid(name, "This is neither true nor false.")
	}
	return true, nil
}

// WaitMS returns the wait in milliseconds; 0 if the query does not have it.
func (q Query) WaitMS(limitMS int64) (int64, error) {
	text, ok := q.Text("wait")
	if !ok {
		return 0, nil
	}
	ms, ok := QueryDuration(text, limitMS)
	if !ok {
		return 0, BadWait(limitMS)
	}
	return ms, nil
}

// Epoch returns the epoch that the semaphore must have; 0: any epoch.
func (q Query) Epoch() (uint64, error) { return q.Number("epoch", 0, 1, 1<<63-1) }

// Token returns the token that the lease must have; 0: any token.
func (q Query) Token() (uint64, error) { return q.Number("token", 0, 1, 1<<63-1) }

// TokenNumber reads the token of a lease from a segment of a path.
func TokenNumber(field, text string) (uint64, error) {
	token, ok := ParseDigits(text)
	if !ok || token == 0 || token > 1<<63-1 {
		return 0, Invalid(field, "A token is a whole number from 1 on, as the lease's reply has it.")
	}
	return token, nil
}

// Version returns the version that an item must have; 0 if the query does not have it.
func (q Query) Version() (int64, error) {
	n, err := q.Number("if_version", 0, 0, 1<<63-1)
	return int64(n), err
}

// ReadParams returns the names of the parameters that every read takes, after more.
func ReadParams(more ...string) []string { return append(more, "consistency", "min_index") }

// AsksConsistency reports whether the query says how recent the read must be.
func (q Query) AsksConsistency() bool { return q["consistency"] != nil || q["min_index"] != nil }

// consistency returns how recent a read must be.
func (q Query) consistency() (calls.Consistency, error) {
	var c calls.Consistency
	switch text, present := q.Text("consistency"); {
	case !present:
	case text == "linearizable":
		c.Linearizable = true // even if there is a min_index too
	case text == "stale":
		c.Stale = true
	default:
		return c, Invalid("consistency", "This is neither linearizable nor stale.")
	}
	var err error
	c.MinIndex, err = q.Number("min_index", 0, 0, 1<<63-1)
	return c, err
}

// Prefix returns the beginning of the names to list.
func (q Query) Prefix() (string, error) {
	text, _ := q.Text("prefix")
	if text != "" && !fsm.ValidName(text) {
		return "", Invalid("prefix", "A prefix is the beginning of a name: "+nameForm+".")
	}
	return text, nil
}

// Reason returns an operator's reason; "" if the query does not have it.
func (q Query) Reason() (string, error) {
	text, _ := q.Text("reason")
	if !fsm.ValidReason(text) {
		return "", Invalid("reason", ReasonForm)
	}
	return text, nil
}

// Group returns the group of a parameter, and whether the query has the parameter. The empty group has the empty name.
func (q Query) Group() (group string, named bool, err error) {
	text, named := q.Text("group")
	group, err = GroupName("group", text)
	return group, named, err
}

// ReasonForm refuses a text that is not a valid reason.
const ReasonForm = "A reason is up to 1,024 bytes of UTF-8 without control characters."

// Ellipsis shortens a client's text for use in a reply.
func Ellipsis(text string) string {
	const limit = 64
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// FormBytes decodes a part of a query or of a form. It never fails: it leaves an invalid escape as it is.
func FormBytes(text string) []byte {
	return escape.ReplaceAllFunc([]byte(strings.ReplaceAll(text, "+", " ")), func(escaped []byte) []byte {
		plain, _ := hex.DecodeString(string(escaped[1:]))
		return plain
	})
}

var escape = regexp.MustCompile("%[0-9a-fA-F]{2}")

// Perform performs a command of a request, and sets the headers of its reply.
func (x *Exchange) Perform(ctx context.Context, c echo.Context, call calls.Call) (*calls.Reply, error) {
	reply, err := x.Node.Do(ctx, call)
	if err != nil {
		return reply, err
	}
	x.Replies.SetIndex(c, reply.Index)
	if reply.Replayed {
		c.Response().Header().Set("Idempotency-Replayed", "true")
	}
	UseOnlyResult(reply)
	return reply, nil
}

// UseOnlyResult makes the result of a single renewal, in Each, the result of the reply.
func UseOnlyResult(r *calls.Reply) {
	if len(r.Each) == 1 {
		replayed := r.Replayed
		r.Result = r.Each[0]
		r.Replayed = replayed
	}
}
