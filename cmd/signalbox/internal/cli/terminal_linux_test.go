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

// openTerminal makes a terminal and its other end. Text that is written to keys counts as typed.
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

// TestConfirm: the typed line is the reply, and the end of ctx ends the wait for it.
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

// TestEmptyListOnTerminal: a terminal shows that a list is empty; a pipe gets no line that a program could take for a member.
func TestEmptyListOnTerminal(t *testing.T) {
	empty := func(func(string, error) bool) {}
	var piped bytes.Buffer
	must(t, PrintList(&Output{W: &piped, Format: Table, Empty: "There is no item."}, empty, nil, nil, nil))
	if piped.Len() != 0 {
		t.Errorf("a pipe gets %q", piped.String())
	}
	keys, screen := openTerminal(t)
	shown := bufio.NewReader(keys)
	for text, want := range map[string]string{"": "The list is empty.\r\n", "There is no item.": "There is no item.\r\n"} {
		must(t, PrintList(&Output{W: screen, Format: Table, Empty: text}, empty, nil, nil, nil))
		if got, err := shown.ReadString('\n'); err != nil || got != want {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// TestNamesOnTerminal: a program gets a bare name unchanged; on a terminal the name has no control characters.
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
