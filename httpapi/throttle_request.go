package httpapi

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
)

// throttleBodyBytes is the most that a body of this dialect has: a number, or a
// duration. Only a restore has more, as much as a body of the native API.
const throttleBodyBytes = 4 << 10

// readJSON reads a body, as strictly and in the same order as throttle: its
// Content-Type, its size, whether it is JSON, whether it has the right shape.
func (t *throttle) readJSON(c echo.Context, limit int64, read func(r *serdeReader) *serdeFault) error {
	if !isJSON(c.Request().Header.Get("Content-Type")) {
		return sentence(http.StatusUnsupportedMediaType, "Expected request with `Content-Type: application/json`")
	}
	var data []byte
	if body := c.Request().Body; body != nil && body != http.NoBody {
		var err error
		if data, err = t.receive(c, limit); err != nil {
			return err
		}
	}
	r := &serdeReader{data: data}
	f := read(r)
	if f == nil {
		f = r.end()
	}
	switch {
	case f == nil:
		return nil
	case f.syntax:
		return sentence(http.StatusBadRequest, "Failed to parse the request body as JSON: "+f.text)
	}
	return sentence(http.StatusUnprocessableEntity, "Failed to deserialize the JSON body into the target type: "+f.text)
}

// isJSON reports whether a Content-Type is application/json or
// application/*+json, whatever its parameters.
func isJSON(contentType string) bool {
	essence, _, _ := strings.Cut(contentType, ";")
	essence = strings.ToLower(strings.TrimSpace(essence))
	kind, isApplication := strings.CutPrefix(essence, "application/")
	return isApplication && (kind == "json" || strings.HasSuffix(kind, "+json"))
}

// readExpiry reads {"expires_in": duration}.
func (t *throttle) readExpiry(c echo.Context) (ttlMS int64, err error) {
	err = t.readJSON(c, throttleBodyBytes, func(r *serdeReader) *serdeFault {
		return r.object("struct ExpiresIn", []serdeField{{"expires_in", durationInto(r, &ttlMS)}})
	})
	return t.options.linger(ttlMS), err
}

func durationInto(r *serdeReader, ms *int64) func() *serdeFault {
	return func() (f *serdeFault) {
		*ms, f = r.duration()
		return f
	}
}

// readCount reads a lone integer.
func (t *throttle) readCount(c echo.Context) (count int64, err error) {
	err = t.readJSON(c, throttleBodyBytes, func(r *serdeReader) (f *serdeFault) {
		count, f = r.signed()
		return f
	})
	return count, err
}

// readRestore reads what a client remembers of its peer.
func (t *throttle) readRestore(c echo.Context) (command fsm.RestoreSession, err error) {
	err = t.readJSON(c, t.cfg.BodyBytes, func(r *serdeReader) *serdeFault {
		return r.object("struct Restore", []serdeField{
			{"expires_in", durationInto(r, &command.TTLMS)},
			{"peer_id", func() (f *serdeFault) {
				command.Session, f = r.unsigned()
				return f
			}},
			{"acquired", func() (f *serdeFault) {
				command.Leases, f = r.counts()
				return f
			}},
		})
	})
	command.TTLMS = t.options.linger(command.TTLMS)
	return command, err
}

// throttleQuery are the parameters of a query that a route knows, by name. What
// it doesn't know is ignored.
type throttleQuery map[string]string

// readQuery reads a query; check is asked for each known parameter, in their
// order, what is wrong with its value.
func readQuery(raw string, check func(value string) string, names ...string) (throttleQuery, error) {
	found := throttleQuery{}
	for _, pair := range strings.Split(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, value = formText(name), formText(value)
		if pair == "" || !contains(names, name) {
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
	return sentence(http.StatusBadRequest, "Failed to deserialize query string: "+detail)
}

// duration answers a parameter that was checked by isDuration, in milliseconds.
func (q throttleQuery) duration(name string) (ms int64, given bool) {
	value, given := q[name]
	if given {
		ms, _ = parseSpan(value)
	}
	return ms, given
}

func isDuration(value string) (wrong string) {
	if _, ok := parseSpan(value); !ok {
		return noDuration(value)
	}
	return ""
}

// formText decodes a part of a query. Unlike net/url's reader it never fails:
// what is no escape is taken as it stands.
func formText(text string) string {
	return strings.ToValidUTF8(string(formBytes(text)), "\uFFFD")
}

// formBytes is formText before it is known to be text.
func formBytes(text string) []byte {
	if !strings.ContainsAny(text, "%+") {
		return []byte(text)
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '+':
			plain = append(plain, ' ')
		case text[i] == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]):
			plain = append(plain, hexValue(text[i+1])<<4|hexValue(text[i+2]))
			i += 2
		default:
			plain = append(plain, text[i])
		}
	}
	return plain
}

func isHex(b byte) bool {
	return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'f'
}

func hexValue(b byte) byte {
	if b <= '9' {
		return b - '0'
	}
	return b | 0x20 - 'a' + 10
}
