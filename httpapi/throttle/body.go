package throttle

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/strictjson"
)

// bodyBytes bounds every body that is a number or a duration. The body of a restore has the larger limit of the native
// API.
const bodyBytes = 4 << 10

// bodyRules allow unknown members with any content.
var bodyRules = strictjson.Rules{Depth: 1000, Repeats: true}

// readJSON reads a body. It checks what throttle checks, in the same order: the Content-Type
// (415), the size (413), the syntax (400), and the shape (422), for which read returns an error.
func (t *dialect) readJSON(c echo.Context, limit int64, read func(v strictjson.Value) error) error {
	if !isJSON(c.Request().Header.Get("Content-Type")) {
		return exchange.Sentence(http.StatusUnsupportedMediaType, "Expected request with `Content-Type: application/json`")
	}
	data, err := t.Bodies.Receive(c, limit)
	if err != nil {
		return err
	}
	if fault := strictjson.Check(data, bodyRules); fault != nil {
		return exchange.Sentence(http.StatusBadRequest, "Failed to parse the request body as JSON: "+fault.Error()+".")
	}
	if err := read(strictjson.Document(data)); err != nil {
		return exchange.Sentence(http.StatusUnprocessableEntity, "Failed to deserialize the JSON body into the target type: "+err.Error()+".")
	}
	return nil
}

// isJSON reports whether a Content-Type is application/json or application/*+json, whatever its
// parameters.
func isJSON(contentType string) bool {
	essence, _, _ := strings.Cut(contentType, ";")
	essence = strings.ToLower(strings.TrimSpace(essence))
	kind, isApplication := strings.CutPrefix(essence, "application/")
	return isApplication && (kind == "json" || strings.HasSuffix(kind, "+json"))
}

// readExpiry reads {"expires_in": duration}.
func (t *dialect) readExpiry(c echo.Context) (ttlMS int64, err error) {
	err = t.readJSON(c, bodyBytes, func(v strictjson.Value) error {
		return readFields(v, bodyField{"expires_in", intoDuration(&ttlMS)})
	})
	return t.options.linger(ttlMS), err
}

// readCount reads a bare integer.
func (t *dialect) readCount(c echo.Context) (count int64, err error) {
	err = t.readJSON(c, bodyBytes, func(v strictjson.Value) (err error) {
		count, err = readInteger(v)
		return err
	})
	return count, err
}

// readRestore reads the locks that a client remembers of its peer.
func (t *dialect) readRestore(c echo.Context) (command fsm.RestoreSession, err error) {
	err = t.readJSON(c, t.Config.BodyBytes, func(v strictjson.Value) error {
		return readFields(v,
			bodyField{"expires_in", intoDuration(&command.TTLMS)},
			bodyField{"peer_id", func(v strictjson.Value) (err error) {
				if command.Session, err = strconv.ParseUint(string(v), 10, 64); err != nil {
					return errors.New("it is not a whole number from 0 to 18446744073709551615")
				}
				return nil
			}},
			bodyField{"acquired", func(v strictjson.Value) (err error) {
				command.Leases, err = readCounts(v)
				return err
			}})
	})
	command.TTLMS = t.options.linger(command.TTLMS)
	return command, err
}

// bodyField is a member that a body must have.
type bodyField struct {
	name string
	read func(v strictjson.Value) error
}

// readFields reads an object that has each of the fields exactly once, and ignores other members. Throttle also accepts
// an array of the fields' values; no client sends such an array.
func readFields(v strictjson.Value, fields ...bodyField) error {
	if !v.IsObject() {
		return errors.New("it is not an object")
	}
	seen := map[string]bool{}
	for name, value := range v.Members() {
		for _, f := range fields {
			if f.name != string(name) {
				continue
			}
			if seen[f.name] {
				return fmt.Errorf("duplicate field `%s`", f.name)
			}
			seen[f.name] = true
			if err := f.read(value); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	for _, f := range fields {
		if !seen[f.name] {
			return fmt.Errorf("missing field `%s`", f.name)
		}
	}
	return nil
}

func intoDuration(ms *int64) func(v strictjson.Value) error {
	return func(v strictjson.Value) error {
		text, isText := v.Text()
		if !isText {
			return errors.New("it is not a duration in quotes")
		}
		var ok bool
		if *ms, ok = parseSpan(text); !ok {
			return errors.New(noDuration(text))
		}
		return nil
	}
}

func readInteger(v strictjson.Value) (int64, error) {
	n, ok := v.Integer()
	if !ok || v[0] == '-' && n == 0 { // throttle reads -0 as a fraction
		return 0, errors.New("it is not a whole number of 64 bits")
	}
	return n, nil
}

// readCounts reads an object of integers, in the order in which the names first occur. If a name occurs several times,
// its last value counts.
func readCounts(v strictjson.Value) ([]fsm.Want, error) {
	if !v.IsObject() {
		return nil, errors.New("it is not an object")
	}
	var wants []fsm.Want
	at := map[string]int{}
	for raw, value := range v.Members() {
		name := string(raw)
		count, err := readInteger(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if i, again := at[name]; again {
			wants[i].Count = count
			continue
		}
		at[name] = len(wants)
		wants = append(wants, fsm.Want{Semaphore: name, Count: count})
	}
	return wants, nil
}

func noDuration(text string) string {
	return "invalid value: string " + strconv.Quote(text) + ", expected a duration"
}

// query has the known parameters of a query, by name.
type query map[string]string

// readQuery reads the named parameters of a query, and ignores others. It calls check with each value, in the order of
// the query; check returns what is wrong with the value, or "".
func readQuery(raw string, check func(value string) string, names ...string) (query, error) {
	found := query{}
	for _, pair := range strings.Split(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, value = formText(name), formText(value)
		if pair == "" || !slices.Contains(names, name) {
			continue
		}
		if _, again := found[name]; again {
			return nil, badQuery("duplicate field `" + name + "`")
		}
		if wrong := check(value); wrong != "" {
			return nil, badQuery(name + ": " + wrong)
		}
		found[name] = value
	}
	return found, nil
}

func badQuery(detail string) error {
	return exchange.Sentence(http.StatusBadRequest, "Failed to deserialize query string: "+detail)
}

// duration returns a parameter that isDuration has checked, in milliseconds.
func (q query) duration(name string) (ms int64, present bool) {
	value, present := q[name]
	if present {
		ms, _ = parseSpan(value)
	}
	return ms, present
}

func isDuration(value string) (wrong string) {
	if _, ok := parseSpan(value); !ok {
		return noDuration(value)
	}
	return ""
}

// formText decodes a part of a query. Unlike net/url it never fails: it keeps an invalid escape.
func formText(text string) string {
	return strings.ToValidUTF8(string(exchange.FormBytes(text)), "\uFFFD")
}
