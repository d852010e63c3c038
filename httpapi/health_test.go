package httpapi_test

import (
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestHealth(t *testing.T) {
	a := apitest.New(t)
	a.Node.Set(func() {
		a.Node.ChecksNow = []cluster.Check{{Name: "leader", Detail: "none known"}, {Name: "storage", OK: true}}
	})
	a.Do("GET /livez", "").Is(200)
	a.Do("GET /health", "").Is(503)
	if got := a.Do("GET /readyz", "").Is(503); got.Text != "not ready" {
		t.Errorf("body %q", got.Text)
	}
	if got := a.Do("GET /readyz?verbose", "").Is(503); got.Text != "[-] leader none known\n[+] storage\nnot ready\n" {
		t.Errorf("body %q", got.Text)
	}
	a.Node.Set(func() {
		a.Node.ChecksNow[0] = cluster.Check{Name: "address", Detail: "it differs", Moved: &cluster.Peer{ID: "n3", Address: "n3.example:8711"}}
	})
	want := `[-] address it differs: curl -X PUT http://ANOTHER-NODE/v1/cluster/members/n3 -d '{"peer":"n3.example:8711"}'`
	if got := a.Do("GET /readyz?verbose", "").Is(503); !strings.Contains(got.Text, want) {
		t.Errorf("body %q", got.Text)
	}
	a.Node.Set(func() { a.Node.ChecksNow[0] = cluster.Check{Name: "leader", OK: true, Detail: "n1"} })
	if got := a.Do("GET /health", "").Is(200); got.Text != "Ok" {
		t.Errorf("body %q", got.Text)
	}
	a.Do("GET /readyz", "").Is(200)
	a.Node.Set(func() { a.Node.ChecksNow[0].OK = false })
	a.Do("GET /readyz", "").Is(503)
	a.Do("GET /health", "").Is(200) // ready once: never to be killed for looking for a leader
	if got := a.Do("GET /version", "").Is(200); got.Text != "1.2.3" {
		t.Errorf("body %q", got.Text)
	}
}
