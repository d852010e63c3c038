package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// verbStage runs verbs on a cluster. In their output it replaces what differs between runs.
type verbStage struct {
	addresses string
	sessions  []string // $1 is the first that was seen, and so on
	variables []string
}

var (
	seenSession  = regexp.MustCompile(`\b[1-9]\d{9,19}\b`)
	seenDuration = regexp.MustCompile(`\b(\d+h(\d+m)?(\d+s)?|\d+m(\d+s)?|\d+(\.\d+)?m?s)\b`)
	seenMS       = regexp.MustCompile(`_ms":\d+`)
	seenCluster  = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	seenClock    = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d`)
	seenNumber   = regexp.MustCompile(`("(index|epoch|term|commit_index|applied_index|modified_index|lag|id)":)"?\d+(\.\d+)?"?`)
	seenProcess  = regexp.MustCompile(`\S+@\S+ pid \d+|"host":"[^"]*"|"pid":"\d+"|"user":"[^"]*"`)
	seenPort     = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	columns      = regexp.MustCompile(` {2,}`)
)

// startStage starts a node with the flags, and returns when the node is ready. stop stops it in order.
func startStage(t *testing.T, flags ...string) (s *verbStage, stop func()) {
	port := freePorts(t, 0, 1)
	s = &verbStage{addresses: fmt.Sprintf("http://127.0.0.1:%d", port)}
	ctx, cancel := context.WithCancel(t.Context())
	node := startInProcess(ctx, t, append([]string{"serve", "--http", fmt.Sprintf("127.0.0.1:%d", port), "--peer", fmt.Sprintf("127.0.0.1:%d", port+1)}, flags...)...)
	node.awaitLog(t, "serving")
	eventually(t, 30*time.Second, func() error {
		if o := command(t, []string{"healthcheck", "--url", s.addresses + "/readyz"}); o.status != 0 {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	return s, func() {
		cancel()
		node.ended(t, 10*time.Second)
	}
}

// hidden replaces sessions, times and indexes, and the padding of tables.
func (s *verbStage) hidden(text string) string {
	text = seenMS.ReplaceAllString(text, `_ms":T`)
	text = seenSession.ReplaceAllStringFunc(text, func(id string) string {
		for i, known := range s.sessions {
			if known == id {
				return fmt.Sprintf("$%d", i+1)
			}
		}
		s.sessions = append(s.sessions, id)
		return fmt.Sprintf("$%d", len(s.sessions))
	})
	text = seenDuration.ReplaceAllString(text, "T")
	text = seenCluster.ReplaceAllString(text, "HEX")
	text = seenClock.ReplaceAllString(text, "CLOCK")
	text = seenNumber.ReplaceAllString(text, "${1}N")
	for i, address := range strings.Split(s.addresses, ",") {
		text = strings.ReplaceAll(text, address, fmt.Sprintf("http://n%d", i+1))
	}
	text = seenProcess.ReplaceAllString(text, "PROCESS")
	text = seenPort.ReplaceAllString(text, "PEER")
	return columns.ReplaceAllString(text, "  ")
}

// arguments returns the words of a line.
func (s *verbStage) arguments(line string) (words []string) {
	for _, word := range strings.Fields(line) {
		for i, id := range slices.Backward(s.sessions) { // $1 begins $10
			word = strings.ReplaceAll(word, fmt.Sprintf("$%d", i+1), id)
		}
		words = append(words, strings.ReplaceAll(word, "_", " "))
	}
	return words
}

// background starts a verb that waits for a semaphore, and returns once its request is in line.
func (s *verbStage) background(ctx context.Context, t *testing.T, name, line string) {
	waiting := func() int {
		var seen struct {
			Count int `json:"waiter_count"`
		}
		o := command(t, []string{"show", name, "-o", "json", "--addr", s.addresses})
		if err := json.Unmarshal([]byte(o.stdout), &seen); err != nil {
			t.Fatalf("%v: %+v", err, o)
		}
		return seen.Count
	}
	before := waiting()
	r := startInProcess(ctx, t, append(s.arguments(line), "--addr", s.addresses)...)
	eventually(t, 30*time.Second, func() error {
		select {
		case status := <-r.status:
			t.Fatalf("%s ended with status %d: %s", line, status, r.stderr.String())
		default:
		}
		if waiting() == before {
			return errors.New("no request has joined the line")
		}
		return nil
	})
}

// perform runs the lines of a script's command, one verb each.
func (s *verbStage) perform(t *testing.T, lines string) string {
	var shown strings.Builder
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		o := command(t, s.arguments(line), append(s.variables, "SIGNALBOX_ADDR", s.addresses)...)
		fmt.Fprintf(&shown, "> %s\n%s", line, s.hidden(o.stdout+o.stderr))
		if o.status != 0 {
			fmt.Fprintf(&shown, "exit status %d\n", o.status)
		}
	}
	return shown.String()
}

// TestVerbs runs the scripts of testdata/verbs, each on a new node: the output of each verb in each format, its refusals
// and its exit statuses. In a script _ stands for a space within a word, and $1 for the first session that was seen;
// background leaves a verb waiting.
func TestVerbs(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "verbs"), func(t *testing.T, path string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, stop := startStage(t, "--ephemeral")
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "background" {
				var name string
				d.ScanArgs(t, "for", &name)
				s.background(ctx, t, name, d.Input)
				return ""
			}
			return s.perform(t, d.Input)
		})
		cancel()
		stop()
	})
}

// TestVerbsFollow: events and watch end in order at Ctrl-C, and have printed the changes until then.
func TestVerbsFollow(t *testing.T) {
	s, end := startStage(t, "--ephemeral")
	address := s.addresses
	if o := command(t, []string{"create", "db", "--permits", "2", "--addr", address, "--timeout", "20s"}); o.status != 0 {
		t.Fatalf("%+v", o)
	}
	if o := command(t, []string{"__complete", "show", "d"}, "SIGNALBOX_ADDR", address); !strings.HasPrefix(o.stdout, "db\n:4\n") {
		t.Errorf("completed to %+v", o)
	}
	following, stop := context.WithCancel(t.Context())
	defer stop()
	events := startInProcess(following, t, "events", "--since", "0", "--name", "db", "-o", "json", "--addr", address)
	lines := startInProcess(following, t, "events", "--since", "0", "--addr", address)
	last := startInProcess(following, t, "events", "--last", "1", "--prefix", "d", "--addr", address)
	watch := startInProcess(following, t, "watch", "db", "--addr", address)
	events.awaitOutput(t, `"event":"created"`)
	last.awaitOutput(t, "created          db") // before the grant, which else would be the last event
	watch.awaitOutput(t, "0 held")
	if o := command(t, []string{"acquire", "db", "--metadata", "host=web7,pid=1,user=ann", "--addr", address}); o.status != 0 {
		t.Fatalf("%+v", o)
	}
	events.awaitOutput(t, `"event":"granted"`)
	lines.awaitOutput(t, time.Now().Format(time.DateOnly)) // the local time
	lines.awaitOutput(t, "granted          db  ann@web7 pid 1 (session ")
	last.awaitOutput(t, "granted          db")
	if o := command(t, []string{"item", "put", "cfg", "v", "--addr", address}); o.status != 0 {
		t.Fatalf("%+v", o)
	}
	lines.awaitOutput(t, "item-changed     item cfg")
	if o := command(t, []string{"events", "--session-id", "77", "--addr", address, "--timeout", "20s"}); o.status == 0 || !strings.Contains(o.stderr, "No session has this id") {
		t.Errorf("the events of a session that has ended: %+v", o)
	}
	for _, line := range []string{"create pool --permits 1 --groups request --pause x", "groups pool a --limit 3", "groups pool b --limit 4"} {
		if o := command(t, append(strings.Fields(line), "--addr", address)); o.status != 0 {
			t.Fatalf("%+v", o)
		}
	}
	group := startInProcess(following, t, "events", "--since", "0", "--group", "b", "--addr", address)
	group.awaitOutput(t, "group-changed    pool  group b  limit 4")
	lines.awaitOutput(t, "permits 1  paused: x")
	if strings.Contains(group.stdout.String(), "group a") {
		t.Errorf("another group: %s", group.stdout.String())
	}
	watch.awaitOutput(t, "1 held")
	stop()
	for _, r := range []*running{events, lines, last, group, watch} {
		r.ended(t, 10*time.Second)
	}
	end()
}

// TestVerbsWithoutCluster: each verb ends soon with status 6, and says what to do next.
func TestVerbsWithoutCluster(t *testing.T) {
	for _, arguments := range []string{"ls", "show db", "status", "members", "acquire db", "up db", "renew 5", "watch db", "events", "rm db", "leader n1"} {
		t.Run(arguments, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr written
			variables := lookup(t, "SIGNALBOX_ADDR", "http://127.0.0.1:1")
			status := run(t.Context(), append(strings.Fields(arguments), "--timeout", "50ms"), variables, &stdout, &stderr) // without a deadline
			o := outcome{status, stdout.String(), stderr.String()}
			o.refused(t, "no node replied: dial tcp 127.0.0.1:1", "--addr or SIGNALBOX_ADDR", "\"signalbox dev\"")
			if o.status != 6 {
				t.Errorf("status %d", o.status)
			}
		})
	}
}

// TestContexts: a context gives the address and the token. Flags take precedence over it, and so do variables unless
// --context is on the command line.
func TestContexts(t *testing.T) {
	home := t.TempDir()
	folder := filepath.Join(home, ".config", "signalbox")
	must(t, os.MkdirAll(folder, 0o700))
	write := func(text string) {
		must(t, os.WriteFile(filepath.Join(folder, "config.toml"), []byte(text), 0o600))
	}
	write("context = \"home\"\n[contexts.home]\naddr = [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]\n[contexts.away]\naddr = \"http://127.0.0.1:3\"\ntoken-file = \"none\"\n")
	for _, c := range []struct {
		arguments string
		variables []string
		words     []string
	}{
		{"ls", nil, []string{"127.0.0.1:"}},
		{"ls --context away", nil, []string{"--token-file", filepath.Join(folder, "none")}},
		{"ls", []string{"SIGNALBOX_CONTEXT", "away"}, []string{"--token-file"}},
		{"ls --context away", []string{"SIGNALBOX_TOKEN", "abc"}, []string{"--token-file"}},
		{"ls", []string{"SIGNALBOX_CONTEXT", "away", "SIGNALBOX_TOKEN", "abc"}, []string{"127.0.0.1:3"}},
		{"rm web --yes --context away", []string{"SIGNALBOX_ADDR", "http://127.0.0.1:4", "SIGNALBOX_TOKEN", "7"}, []string{"--token-file"}},
		{"ls --addr http://127.0.0.1:4", nil, []string{"127.0.0.1:4"}},
		{"ls", []string{"SIGNALBOX_ADDR", "http://127.0.0.1:4"}, []string{"127.0.0.1:4"}},
		{"ls --context none", nil, []string{"--context", "[contexts.none]"}},
		{"ls --contexts none.toml", nil, []string{"--contexts", "none.toml"}},
		{"run db --context away -- true", nil, []string{"--token-file"}},
	} {
		t.Run(c.arguments, func(t *testing.T) {
			arguments := strings.Fields(c.arguments)
			if arguments[0] != "run" {
				arguments = append(arguments, "--timeout", "50ms")
			}
			var stdout, stderr written
			status := run(t.Context(), arguments, lookup(t, append(c.variables, "HOME", home)...), &stdout, &stderr) // without a deadline
			outcome{status, stdout.String(), stderr.String()}.refused(t, c.words...)
		})
	}
	for text, word := range map[string]string{
		"contxt = \"home\"":                              "contxt",
		"context = \"home\"\n[contexts.home]\nttl = 3":   "ttl",
		"context = \"home\"\n[contexts.home]\naddr = 3.": "config.toml",
		"context = 3": "config.toml",
	} {
		write(text)
		command(t, []string{"ls", "--timeout", "50ms"}, "HOME", home).refused(t, word, "config.toml")
	}
}
