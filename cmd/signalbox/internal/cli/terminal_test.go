package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func none(string) (string, bool) { return "", false }

// TestFormats: the same rows in each format, and in a table without the control characters of clients.
func TestFormats(t *testing.T) {
	members := func(yield func(string, error) bool) {
		_ = yield("a\x1b[2J", nil) && yield("<b>", nil)
	}
	for format, want := range map[string]string{
		Table: "NAME   LENGTH\na?[2J  5\n<b>    -\n",
		JSON:  "[\n\"a\\u001b[2J\",\n\"\\u003cb\\u003e\"\n]\n",
		Name:  "a\x1b[2J\n<b>\n",
	} {
		var b bytes.Buffer
		o, err := NewOutput(&b, format, none)
		if err != nil || o.Colour {
			t.Fatal(o, err)
		}
		err = PrintList(o, members, []string{"NAME", "LENGTH"}, func(s string) string { return s }, func(s string) []string {
			return []string{s, map[bool]string{true: "5"}[len(s) == 5]}
		})
		if err != nil || b.String() != want {
			t.Errorf("%s: %q, %v", format, b.String(), err)
		}
	}
	if _, err := NewOutput(nil, "yaml", none); err == nil {
		t.Error("yaml is a format")
	}
	failed := errors.New("failed")
	var b bytes.Buffer
	err := PrintList(&Output{W: &b, Format: Name}, func(yield func(string, error) bool) { _ = yield("a", nil) && yield("", failed) }, nil, func(s string) string { return s }, nil)
	if !errors.Is(err, failed) || b.String() != "a\n" {
		t.Errorf("%v, %q", err, b.String())
	}
}

// TestShort shows durations in few characters.
func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "?", 0: "0s", 1500 * time.Microsecond: "2ms", 1234 * time.Millisecond: "1.2s", 59600 * time.Millisecond: "1m", 90 * time.Second: "1m30s",
		10 * time.Minute: "10m", 20 * time.Hour: "20h", 20*time.Hour + time.Minute: "20h1m", 10 * time.Second: "10s",
	} {
		if got := ShortDuration(d); got != want {
			t.Errorf("%v is %q, wanted %q", d, got, want)
		}
	}
}

// TestConfirmNeedsTerminal: without a terminal no question is asked, and the reply is no.
func TestConfirmNeedsTerminal(t *testing.T) {
	var out bytes.Buffer
	if err := Confirm(t.Context(), strings.NewReader("y\n"), &out, "Delete?"); !errors.Is(err, ErrNoTerminal) || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
