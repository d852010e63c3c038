package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/batch"
	"github.com/signalbox/signalbox/client/operator"
)

// losing loses the reply to the first request, and refuses the later requests.
type losing struct {
	code  string
	asked int
}

// RoundTrip implements http.RoundTripper.
func (l *losing) RoundTrip(*http.Request) (*http.Response, error) {
	if l.asked++; l.asked == 1 {
		return nil, io.ErrUnexpectedEOF
	}
	body := `{"status":404,"code":"` + l.code + `"}`
	return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// TestLostReplies: if the reply to the removal of a member is lost, its repeat finds no member, which is not an error. A
// transfer of the leadership to any member is not repeated.
func TestLostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &losing{code: "unknown-member"}
		c, err := client.New(client.Config{Addresses: []string{"n1", "n2"}, HTTPClient: &http.Client{Transport: l}})
		must(t, err)
		if err := operator.New(c).RemoveMember(t.Context(), "n3"); err != nil {
			t.Errorf("removed: %v", err)
		}
		if err := operator.New(c).RemoveMember(t.Context(), "n3"); !errors.Is(err, operator.ErrUnknownMember) {
			t.Errorf("removed again: %v", err)
		}
		l.asked = 0
		if err := operator.New(c).TransferLeadership(t.Context(), ""); !errors.Is(err, client.ErrOutcomeUnknown) || l.asked != 1 {
			t.Errorf("handed over: %v, %d requests", err, l.asked)
		}
		l.asked = 0
		if err := operator.New(c).TransferLeadership(t.Context(), "n3"); !errors.Is(err, operator.ErrUnknownMember) || l.asked != 2 {
			t.Errorf("handed over to n3: %v, %d requests", err, l.asked)
		}
	})
}

// TestOperationTTL: a ttl is rounded up to whole milliseconds, because 0 would end a session.
func TestOperationTTL(t *testing.T) {
	for ttl, want := range map[time.Duration]string{0: "", 1: `"ttl":1`, 1500 * time.Microsecond: `"ttl":2`, -1: `"ttl":-1`, time.Second: `"ttl":1000`} {
		text, err := json.Marshal(batch.Operation{Op: "renew", Session: "5", TTL: ttl})
		if err != nil || !strings.Contains(string(text), want) || want == "" && strings.Contains(string(text), "ttl") {
			t.Errorf("%v: %s, %v", ttl, text, err)
		}
	}
}
