package v1

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/strictjson"
	"github.com/signalbox/signalbox/httpapi/v1/reads"
)

// readHeader reads Idempotency-Key and the conditions If-Match and If-None-Match: *. Others
// are refused before, see refuseConditions.
func (p *params) readHeader(header http.Header, op *operation) (err error) {
	if p.key, err = exchange.IdempotencyKey(header); err != nil {
		return err
	}
	if conditions, given := header["If-None-Match"]; given {
		if !op.query.has(fieldOnlyNew) || len(conditions) != 1 || conditions[0] != "*" {
			return exchange.Invalid("If-None-Match", noneMatchForm)
		}
		p.onlyNew = true
	}
	if tags, given := header["If-Match"]; given {
		quoted := strings.Join(tags, " ") // no tag has a space: several are none
		text, begins := strings.CutPrefix(quoted, `"`)
		text, ends := strings.CutSuffix(text, `"`)
		var ok bool
		if p.match, ok = reads.ParseSettingsTag(text); !ok || !begins || !ends {
			return exchange.Invalid("If-Match", matchForm)
		}
		p.given |= fieldMatch
	}
	return nil
}

const matchForm = "If-Match is one ETag as a reply has it: epoch.settings, in quotes. In a batch if_match is without the quotes."

func readMatch(p *params, name string, v strictjson.Value) error {
	text, _ := v.Text() // "" for other values, which is no tag either
	var ok bool
	if p.match, ok = reads.ParseSettingsTag(text); !ok {
		return exchange.Invalid(name, matchForm)
	}
	return nil
}

const noneMatchForm = "Only If-None-Match: * with PUT /v1/semaphores/{name} has a meaning here."

// refuseConditions refuses headers that a route can't heed, rather than ignore them: a
// condition, or a key where repeats are not recognised. A read with a key passes, since
// it may always be repeated.
func refuseConditions(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, path := c.Request(), c.Path()
		changes := r.Method != http.MethodGet && r.Method != http.MethodHead
		if _, given := r.Header["If-Match"]; given && (!changes || path != "/v1/semaphores/:name") {
			return exchange.Invalid("If-Match", "If-Match has a meaning with PUT, PATCH and DELETE /v1/semaphores/{name} alone. Other routes take ?epoch=.")
		}
		if _, given := r.Header["If-None-Match"]; given && (r.Method != http.MethodPut || path != "/v1/semaphores/:name") {
			return exchange.Invalid("If-None-Match", noneMatchForm)
		}
		if _, given := r.Header["Idempotency-Key"]; given && changes && (strings.HasPrefix(path, "/v1/cluster") || path == "/v1/snapshot") {
			return exchange.Invalid("Idempotency-Key", "Changes of the cluster take no key: look at GET /v1/cluster before you repeat one.")
		}
		return next(c)
	}
}
