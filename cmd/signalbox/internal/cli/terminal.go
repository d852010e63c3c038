package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/mattn/go-isatty"
)

// The formats of Output.
const (
	Table = "table"
	JSON  = "json"
	Name  = "name"
)

// Output prints results in one format.
type Output struct {
	W      io.Writer
	Format string
	Colour bool   // whether W is a terminal that should show colours
	Empty  string // text on a terminal in place of an empty list
}

// NewOutput returns an Output, or an error for an unknown format. lookup reads an environment variable.
func NewOutput(w io.Writer, format string, lookup func(string) (string, bool)) (*Output, error) {
	if !slices.Contains([]string{Table, JSON, Name}, format) {
		return nil, fmt.Errorf("--output: %q is not table, json or name", format)
	}
	noColour, _ := lookup("NO_COLOR")
	term, _ := lookup("TERM")
	return &Output{W: w, Format: format, Colour: IsTerminal(w) && noColour == "" && term != "dumb"}, nil
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// Height returns the number of lines of the terminal w, or 0 if w is not a terminal.
func Height(w io.Writer) int {
	rows, _ := size(w)
	return rows
}

// StatusLine is a line on a terminal. Each text overwrites the text before it.
type StatusLine struct {
	W     io.Writer
	shown bool
}

// Show shows a text, shortened to the width of the terminal.
func (l *StatusLine) Show(text string) {
	shown := []rune(Printable(text))
	if _, columns := size(l.W); columns > 1 && len(shown) >= columns {
		shown = append(shown[:columns-2], '…')
	}
	l.shown = true
	fmt.Fprintf(l.W, "\r\x1b[K%s", string(shown))
}

// Remove removes the line.
func (l *StatusLine) Remove() {
	if l.shown {
		l.shown = false
		fmt.Fprint(l.W, "\r\x1b[K")
	}
}

// Printable returns a text without its control characters.
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
}

// Printf prints a line for people. In formats for programs it prints no line.
func (o *Output) Printf(format string, arguments ...any) error {
	if o.Format != Table {
		return nil
	}
	_, err := fmt.Fprintf(o.W, format+"\n", arguments...)
	return err
}

// Result prints one result in a format for programs: only its name, or JSON on one line.
func (o *Output) Result(name string, value any) error {
	switch o.Format {
	case Name:
		_, err := fmt.Fprintln(o.W, o.bare(name))
		return err
	case JSON:
		encoder := json.NewEncoder(o.W)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	}
	return nil
}

// bare returns a name unchanged for a program, and without control characters for a terminal.
func (o *Output) bare(name string) string {
	if IsTerminal(o.W) {
		return Printable(name)
	}
	return name
}

// Raw prints bytes unchanged. On a terminal it removes control characters and adds a final newline.
func (o *Output) Raw(data []byte) error {
	if IsTerminal(o.W) {
		var lines []string
		for _, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
			lines = append(lines, Printable(strings.ReplaceAll(line, "\t", "    ")))
		}
		data = []byte(strings.Join(lines, "\n") + "\n")
	}
	_, err := o.W.Write(data)
	return err
}

// Rows prints a table with titles. The rows with the indexes in red are red.
func (o *Output) Rows(titles []string, rows [][]string, red ...int) error {
	if o.Format != Table || len(rows) == 0 {
		return nil
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{titles}, rows...) {
		for i, cell := range row {
			if cell = Printable(cell); cell == "" {
				cell = "-"
			}
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	lines := strings.SplitAfter(b.String(), "\n")
	head := strings.TrimSuffix(lines[0], "\n")
	for _, i := range red {
		lines[i+1] = o.Red(strings.TrimSuffix(lines[i+1], "\n")) + "\n"
	}
	_, err := fmt.Fprintf(o.W, "%s\n%s", o.Bold(head), strings.Join(lines[1:], ""))
	return err
}

// Red returns a text in red if o.Colour is set.
func (o *Output) Red(text string) string {
	if !o.Colour {
		return text
	}
	return "\x1b[31m" + text + "\x1b[0m"
}

// Bold returns a text in bold if o.Colour is set.
func (o *Output) Bold(text string) string {
	if !o.Colour {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// PrintList prints a list: as a table, as names, or as a JSON array with one member per line.
func PrintList[T any](o *Output, members iter.Seq2[T, error], titles []string, name func(T) string, row func(T) []string) error {
	var rows [][]string
	w := bufio.NewWriter(o.W)
	between := "[\n"
	for member, err := range members {
		if err != nil {
			return errors.Join(err, w.Flush())
		}
		if o.Format == Table {
			rows = append(rows, row(member))
			continue
		}
		if o.Format == JSON {
			text, err := json.Marshal(member)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s%s", between, text) // Flush returns the error
			between = ",\n"
		} else {
			fmt.Fprintln(w, o.bare(name(member)))
		}
	}
	if o.Format == JSON {
		if between == "[\n" {
			fmt.Fprint(w, "[")
		}
		fmt.Fprint(w, "\n]\n")
	}
	if len(rows) == 0 && o.Format == Table && IsTerminal(o.W) {
		return o.Printf("%s", cmp.Or(o.Empty, "The list is empty."))
	}
	return errors.Join(w.Flush(), o.Rows(titles, rows))
}

// ShortDuration formats a duration for people.
func ShortDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "?"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	text := d.Round(time.Second).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// FormatSlots formats slots as "signalbox run" does for its command, for example 0,3.
func FormatSlots(slots []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(slots), " ", ","), "[]")
}

// FormatPairs formats metadata for people.
func FormatPairs(metadata map[string]string) string {
	var pairs []string
	for key, value := range metadata {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, " ")
}

// FormatClient formats a session's metadata for people: first the user, host and process that clients record, then the
// other pairs.
func FormatClient(metadata map[string]string) string {
	rest := maps.Clone(metadata)
	var parts []string
	if user, host := metadata["user"], metadata["host"]; user != "" && host != "" {
		parts = append(parts, user+"@"+host)
		delete(rest, "user")
		delete(rest, "host")
	} else if host != "" {
		parts = append(parts, host)
		delete(rest, "host")
	}
	if pid := metadata["pid"]; pid != "" && len(parts) > 0 {
		parts = append(parts, "pid "+pid)
		delete(rest, "pid")
	}
	if len(rest) > 0 {
		parts = append(parts, FormatPairs(rest))
	}
	return strings.Join(parts, " ")
}

// FormatClientOf is FormatClient followed by the session's id.
func FormatClientOf(metadata map[string]string, session string) string {
	if client := Printable(FormatClient(metadata)); client != "" {
		return fmt.Sprintf("%s (session %s)", client, session)
	}
	return "session " + session
}

var (
	// ErrDeclined: the user has not confirmed.
	ErrDeclined = errors.New("not done")
	// ErrNoTerminal: there is no terminal to ask on.
	ErrNoTerminal = errors.New("this can't be undone, and there is no terminal to ask on")
)

// Confirm asks a question on out, and returns nil if the reply from in is yes. Without a terminal it returns a
// UsageError with ErrNoTerminal. The end of ctx ends the wait, but a goroutine continues to read from in.
func Confirm(ctx context.Context, in io.Reader, out io.Writer, question string) error {
	if !IsTerminal(in) {
		return UsageError(ErrNoTerminal)
	}
	fmt.Fprintf(out, "%s\nGo on? [y/N] ", question)
	typed := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // an error counts as no
		typed <- line
	}()
	select {
	case line := <-typed:
		if reply := strings.ToLower(strings.TrimSpace(line)); reply != "y" && reply != "yes" {
			return ErrDeclined
		}
		return nil
	case <-ctx.Done():
		fmt.Fprintln(out)
		return ctx.Err()
	}
}
