package nodes

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

func list(t *testing.T, addresses ...string) *List {
	t.Helper()
	l, err := Parse(addresses)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "ftp://n1", "http://", "http://n1?x=1", "http://n1#top", "http://n1:port"} {
		if _, err := Parse([]string{"n1", bad}); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"http://t0ken@n1:port", "http://t0ken@n1?x=1", "http://me:t0ken@n1#top", "ftp://t0ken@n1"} {
		if _, err := Parse([]string{bad}); err == nil || strings.Contains(err.Error(), "t0ken") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	n, _ := list(t, "http://me:t0ken@n1").Pick(time.Now(), false)
	if password, _ := n.User().Password(); password != "t0ken" || n.String() != "http://n1" || n.URL([]string{"v1"}, nil).String() != "http://n1/v1" {
		t.Errorf("the password %q of %s, %s", password, n, n.URL([]string{"v1"}, nil))
	}
	if _, err := Parse(nil); err == nil {
		t.Error("no addresses are accepted")
	}
	for address, want := range map[string]string{
		"n1:8701":             "http://n1:8701",
		"https://n1/boxes//":  "https://n1/boxes",
		"http://[::1]:8701/":  "http://[::1]:8701",
		"[fe80::1%eth0]:8701": "http://[fe80::1%25eth0]:8701",
		"[fe80::1%25eth0]:1":  "http://[fe80::1%25eth0]:1",
		"[fe80::1%25]:1":      "http://[fe80::1%2525]:1",
		"https://[fe80::1%e]": "https://[fe80::1%25e]",
		"http://n1/a%2Fb/box": "http://n1/a%2Fb/box",
	} {
		n, _ := list(t, address).Pick(time.Now(), false)
		if n.String() != want {
			t.Errorf("%q is read as %q, not %q", address, n, want)
		}
	}
}

// TestPick follows one list while its nodes fail and work again. Each step depends on the previous steps.
func TestPick(t *testing.T) {
	l, now := list(t, "a", "b", "c"), time.Now()
	byHost := map[string]*Node{}
	for _, n := range l.nodes {
		byHost[n.Host()] = n
	}
	for _, step := range []struct {
		name      string
		happens   func()
		elsewhere bool
		host      string
		pause     time.Duration
	}{
		{"begins with the first", func() {}, false, "a", 0},
		{"elsewhere", func() {}, true, "b", 0},
		{"after a failure", func() { l.MarkFailed(byHost["a"], time.Time{}, false) }, false, "b", 0},
		{"a failure that another call has seen already", func() { l.MarkFailed(byHost["a"], time.Time{}, false) }, false, "b", 0},
		{"stays with the one that worked", func() { l.MarkWorked(byHost["c"], time.Now()) }, false, "c", 0},
		{"leaves a pause", func() { l.MarkFailed(byHost["c"], now.Add(time.Second), false) }, false, "a", 0},
		{"a suspect one comes after that pause", func() {
			l.MarkFailed(byHost["a"], time.Time{}, true)
			l.MarkFailed(byHost["b"], time.Time{}, true)
		}, false, "c", time.Second},
		{"a suspect one comes before a longer pause", func() { l.MarkFailed(byHost["c"], now.Add(time.Minute), false) }, false, "a", 0},
		{"no longer suspect, by a late reply", func() { l.MarkWorked(byHost["b"], now) }, false, "b", 0},
		{"has failed since the attempt began", func() {
			l.MarkFailed(byHost["b"], now.Add(time.Second), false)
			l.MarkWorked(byHost["b"], now)
		}, false, "b", time.Second},
	} {
		step.happens()
		if n, pause := l.Pick(now, step.elsewhere); n.Host() != step.host || pause != step.pause {
			t.Errorf("%s: %s after %v, not %s after %v", step.name, n.Host(), pause, step.host, step.pause)
		}
	}
}

func TestURL(t *testing.T) {
	n, _ := list(t, "https://proxy/boxes").Pick(time.Now(), false)
	for _, c := range []struct{ name, want string }{
		{"db", "https://proxy/boxes/v1/semaphores/db?wait=5"},
		{"a/b c", "https://proxy/boxes/v1/semaphores/a%2Fb%20c?wait=5"},
		{"..", "https://proxy/boxes/v1/semaphores/%2E%2E?wait=5"},
		{"ä", "https://proxy/boxes/v1/semaphores/%C3%A4?wait=5"},
	} {
		segments := []string{"v1", "semaphores", c.name}
		if got := n.URL(segments, url.Values{"wait": {"5"}}).String(); got != c.want {
			t.Errorf("%q: %s", c.name, got)
		}
		if got := "https://proxy/boxes" + Path(segments) + "?wait=5"; got != c.want {
			t.Errorf("path of %q: %s", c.name, got)
		}
	}
}
