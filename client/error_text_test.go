package client

import (
	"encoding/json"
	"strings"
	"testing"
)

// The text of an error names the member and the limit of a refusal, each of them once.
func TestErrorNamesFieldAndLimit(t *testing.T) {
	for _, c := range []struct {
		refusal Error
		want    string
	}{
		{Error{Status: 400, Code: "invalid-request", Detail: "Out of range.", Field: "ttl"}, "400 invalid-request: Out of range. (field: ttl)"},
		{Error{Status: 400, Code: "invalid-request", Detail: "A ttl is 1 ms or more.", Field: "ttl"}, "400 invalid-request: A ttl is 1 ms or more."},
		{Error{Status: 429, Code: "limit-reached", Detail: "Too many.", Rule: "leases", Members: map[string]json.RawMessage{"limit": json.RawMessage("4096")}},
			"429 limit-reached: Too many. (limit: 4096)"},
		{Error{Status: 410, Code: "revoked", Detail: "Gone.", Reason: "maintenance"}, "410 revoked: Gone. (reason: maintenance)"},
	} {
		if got := c.refusal.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	// Options that List does not support are no ListOption.
	if _, ok := Holders(1).(ListOption); ok {
		t.Error("Holders is an option of List")
	}
	if _, ok := Epoch(1).(ListOption); ok || !strings.Contains(queryOf([]ReadOption{Stale(), MinIndex(7)}, ReadOption.read).Encode(), "consistency=stale&min_index=7") {
		t.Error("Epoch is an option of List, or Stale and MinIndex are none of Get")
	}
}
