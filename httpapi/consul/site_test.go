package consul_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi/consul"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// asConsulWith serves the dialect with these options.
func asConsulWith(options consul.Config) func(*apitest.Config) {
	return func(cfg *apitest.Config) {
		cfg.Dialects["consul"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return consul.New(x, options) }
	}
}

// asConsul serves the dialect with the defaults of a node.
func asConsul(cfg *apitest.Config) {
	asConsulWith(consul.Config{LingerPercent: 100, Version: "1.2.3"})(cfg)
}

// inEachConsul runs a test in each place, see apitest.InEachPlace.
func inEachConsul(t *testing.T, test func(s *apitest.Site), change ...func(*apitest.Config)) {
	apitest.InEachPlace(t, test, append([]func(*apitest.Config){asConsul}, change...)...)
}

// onConsul is the dialect over a machine, for tests without virtual time.
func onConsul(t *testing.T, change ...func(*apitest.Config)) (*apitest.Site, *apitest.Node) {
	t.Helper()
	return apitest.OnAPI(t, append([]func(*apitest.Config){asConsul}, change...)...)
}

// TestScripts are tables of the contract.
func TestScripts(t *testing.T) { apitest.RunScripts(t, "testdata", asConsul) }

// TestTokenScripts are tables of the contract at a node with tokens.
func TestTokenScripts(t *testing.T) {
	apitest.RunScripts(t, "testdata/tokens", asConsul, func(cfg *apitest.Config) { withTokens(t)(cfg) }) // in the bubble
}

// open opens a session and returns its id.
func open(s *apitest.Site, body string, headers ...string) string {
	s.Helper()
	var created struct{ ID string }
	got := s.Ask("PUT /v1/session/create", body, headers...)
	if err := json.Unmarshal([]byte(got.Body), &created); err != nil || got.Status != 200 {
		s.Fatalf("create %s: %s", body, got)
	}
	return created.ID
}

// true and false are the replies to writes.
const (
	yes = "200 json true"
	no  = "200 json false"
)

// shownPairs decodes a list of keys.
func shownPairs(s *apitest.Site, got apitest.Answer) (pairs []pair) {
	s.Helper()
	decoder := json.NewDecoder(strings.NewReader(got.Body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&pairs); err != nil || got.Status != 200 {
		s.Fatalf("%s: %v", got, err)
	}
	return pairs
}

// pair is a key as clients read it.
type pair struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte
	Session     string
	CreateIndex uint64
	ModifyIndex uint64
}

// keyOf returns the one key of a list.
func keyOf(s *apitest.Site, key string) pair {
	s.Helper()
	return shownPairs(s, s.Ask("GET /v1/kv/"+key, ""))[0]
}

// setPath sets the path of a URL as the server does.
func setPath(u *url.URL, escaped string) error {
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return err
	}
	u.Path = plain
	if u.EscapedPath() != escaped {
		u.RawPath = escaped
	}
	return nil
}
