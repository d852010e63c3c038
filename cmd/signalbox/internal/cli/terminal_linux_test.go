package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal, and the other end of it: what is written to keys is typed.
func openTerminal(t *testing.T) (keys, terminal *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no terminals to give: %v", err)
	}
	t.Cleanup(func() { keys.Close() })
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	must(t, err)
	t.Cleanup(func() { terminal.Close() })
	return keys, terminal
}

// TestConfirm: the line that is typed decides, and the end of ctx ends the wait for it.
func TestConfirm(t *testing.T) {
	keys, in := openTerminal(t)
	for typed, want := range map[string]error{"y\n": nil, " YES \n": nil, "n\n": ErrDeclined, "\n": ErrDeclined} {
		var out bytes.Buffer
		if _, err := keys.WriteString(typed); err != nil {
			t.Fatal(err)
		}
		if err := Confirm(t.Context(), in, &out, "Delete?"); !errors.Is(err, want) || out.String() != "Delete?\nGo on? [y/N] " {
			t.Errorf("%q: %v, %q", typed, err, out.String())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Confirm(ctx, in, new(bytes.Buffer), "Delete?"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestNamesOnTerminal: a bare name reaches a program as it is, and does not drive a terminal.
func TestNamesOnTerminal(t *testing.T) {
	const name = "a\u200eb"
	members := func(yield func(string, error) bool) { yield(name, nil) }
	same := func(s string) string { return s }
	var b bytes.Buffer
	o := &Output{W: &b, Format: Name}
	if err := errors.Join(o.Result(name, nil), PrintList(o, members, nil, same, nil)); err != nil || b.String() != name+"\n"+name+"\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	keys, screen := openTerminal(t)
	o = &Output{W: screen, Format: Name}
	must(t, errors.Join(o.Result(name, nil), PrintList(o, members, nil, same, nil)))
	shown := bufio.NewReader(keys)
	for range 2 {
		if got, err := shown.ReadString('\n'); err != nil || got != "a?b\r\n" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
