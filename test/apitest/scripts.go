package apitest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/httpapi"
)

// RunScripts runs the scripts of a folder, which are tables of an API's contract. "== TITLE"
// begins a test with a new service; the lines before the first title begin each test. A script
// runs in each place, or, if its first line says so, "at machine" alone or "at turns": the three
// nodes of a cluster get one request after the other. A line is
//
//	METHOD TARGET [BODY] [HEADERS] => REPLY   "@ci GET /" has the token secret-ci
//	& METHOD TARGET [BODY] [HEADERS]          asks, and goes on while the request waits
//	=> REPLY                                  of the oldest request that waits
//	&b METHOD …, and &b => REPLY              a second line of such requests
//	blocked                                   all of these still wait for their replies
//	batch [HEADERS] [=> HEADERS]              sends the indented lines, OPERATION => REPLY
//	for $a $b in 1 x 2 y                      repeats the indented lines; 1..9 are nine values
//	def NAME $a $b                            makes the indented lines the line NAME 1 x
//	let $a = TEXT
//	advance DURATION
//	semaphore NAME PERMITS [LEVEL]            makes or changes one; NAME may be quoted
//	peer ID TTL                               makes a peer of throttle
//	state, same state                         between them no semaphore, session, waiter or item changes
//	commands COUNT                            that the machine was given since the last such line
//	kill NODE, restart                        of a cluster; NODE may be leader
//
// A header is "[Name: value]", "  # " begins a comment, and "\" at the end goes on in the next
// line. The REPLY of a dialect is the status, "text", "json", "problem" or "bare" (without a
// Content-Type), and the whole body, in which \n is a line feed. The REPLY of the native API is
// the status, the code if it is a problem, and members, of which the others are free:
//
//	201 session=$s leases.length=2 leases.0(count=1 reason="too slow") mode=absent [Location: /v1/sessions/$s]
//
// "~" has a text within, "!=" and "!~" deny; the member body is the whole body. Such a request and
// its reply must be as openapi.json has them. "[took: 2s]" is the time of a request.
//
// $s takes the value in its place the first time, and stands for it from then on, but for one in
// a loop, which its next round takes anew. $_ is any value. $%s is a value as a path has it, $"s as
// JSON has it, and $[a*99] is 99 times a.
func RunScripts(t *testing.T, folder string, change ...func(*Config)) {
	t.Helper()
	RunScriptsWith(t, nil, folder, change...)
}

// Words are further words with which lines begin, and what such a line does with its values.
type Words map[string]func(s *Site, values []string)

// RunScriptsWith is RunScripts with further words.
func RunScriptsWith(t *testing.T, more Words, folder string, change ...func(*Config)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			places, lines := everywhere, scriptLines(file, string(text))
			if name, ok := strings.CutPrefix(lines[0].text, "at "); ok {
				places, lines = map[string]place{name: oneByOne[name]}, lines[1:]
			}
			first, titles := sections(lines)
			for i, title := range titles {
				t.Run(strings.TrimPrefix(title[0].text, "== "), func(t *testing.T) {
					inPlaces(t, places, func(s *Site) {
						(&script{Site: s, more: more}).test(append(first[:len(first):len(first)], titles[i]...))
					}, change...)
				})
			}
			if len(titles) == 0 {
				inPlaces(t, places, func(s *Site) { (&script{Site: s, more: more}).test(first) }, change...)
			}
		})
	}
}

// oneByOne are the places that a script may name.
var oneByOne = map[string]place{"machine": onMachine, "turns": onTurns}

// scriptLine is a line of a script, without its comment, with the lines in which it goes on.
type scriptLine struct {
	at     string // the file and the number
	indent int
	text   string
}

func scriptLines(file, text string) (lines []scriptLine) {
	goesOn := false
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "  # ")
		trimmed := strings.TrimLeft(line, " \t")
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		text, more := strings.CutSuffix(trimmed, `\`)
		if goesOn {
			lines[len(lines)-1].text += text
		} else {
			lines = append(lines, scriptLine{file + ":" + strconv.Itoa(i+1), len(line) - len(trimmed), text})
		}
		goesOn = more
	}
	return lines
}

// sections returns the lines before the first title, and the lines from each title on.
func sections(lines []scriptLine) (first []scriptLine, titles [][]scriptLine) {
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line.text, "== "):
			titles = append(titles, []scriptLine{line})
		case len(titles) == 0:
			first = append(first, line)
		default:
			titles[len(titles)-1] = append(titles[len(titles)-1], line)
		}
	}
	return first, titles
}

// script is a script that runs.
type script struct {
	*Site
	more    Words
	values  map[string]string
	defined map[string]definition
	waiting map[string][]*sent // by the label after &
	checked int
	given   int // commands before the last such line
	before  string
}

type definition struct {
	names []string
	lines []scriptLine
}

func (s *script) test(lines []scriptLine) {
	s.values, s.defined, s.waiting = map[string]string{}, map[string]definition{}, map[string][]*sent{}
	s.run(lines)
	for label, left := range s.waiting {
		if len(left) > 0 {
			s.Errorf("%d of %s are left blocked", len(left), label)
		}
	}
	if s.checked == 0 {
		s.Error("no reply is checked")
	}
}

func (s *script) run(lines []scriptLine) {
	s.Helper()
	for len(lines) > 0 {
		end := 1
		for end < len(lines) && lines[end].indent > lines[0].indent {
			end++
		}
		failed := s.Failed()
		s.do(lines[0].text, lines[1:end])
		if s.Failed() && !failed {
			s.Errorf("%s: %s", lines[0].at, lines[0].text)
		}
		lines = lines[end:]
	}
}

func (s *script) do(line string, block []scriptLine) {
	s.Helper()
	request, want, replies := strings.Cut(line, "=> ")
	request = strings.TrimSpace(request)
	word, rest, _ := strings.Cut(request, " ")
	if d, ok := s.defined[word]; ok {
		s.repeat(d.names, s.listed(rest), d.lines, false)
		return
	}
	if perform, ok := s.more[word]; ok {
		perform(s.Site, s.listed(rest))
		return
	}
	switch word {
	case "==":
	case "blocked":
		s.blocked()
	case "batch":
		s.batch(rest, want, block)
	case "for":
		names, values, _ := strings.Cut(rest, " in ")
		s.repeat(strings.Fields(names), s.listed(values), block, true)
	case "def":
		names := strings.Fields(rest)
		s.defined[names[0]] = definition{names[1:], block}
	case "let":
		name, value, _ := strings.Cut(rest, " = ")
		s.values[name[1:]] = s.expand(value)
	case "advance":
		s.Advance(s.duration(s.expand(rest)))
	case "semaphore":
		s.scriptSemaphore(rest)
	case "peer":
		id, ttl, _ := strings.Cut(s.expand(rest), " ")
		s.Peer(id, ttl)
	case "state":
		s.before = s.state()
	case "same":
		if after := s.state(); after != s.before {
			s.Errorf("the state changed:\n%s\n%s", s.before, after)
			s.before = after
		}
	case "commands":
		s.commands(rest)
	case "kill":
		s.others.killOne(rest)
	case "restart":
		s.others.Restart()
	default:
		s.ask(word, rest, request, want, replies)
	}
}

// ask sends a request, or takes the reply of one that waits.
func (s *script) ask(word, rest, request, want string, replies bool) {
	s.Helper()
	label := word == "" || word[0] == '&'
	switch {
	case label && replies:
		word = "&" + strings.TrimPrefix(word, "&")
		if len(s.waiting[word]) == 0 {
			s.Fatalf("no request waits as %s", word)
		}
		oldest := s.waiting[word][0]
		s.waiting[word] = s.waiting[word][1:]
		<-oldest.done
		s.check(oldest, want)
	case label:
		later := s.later(rest)
		if s.waiting[word] = append(s.waiting[word], later); len(later.done) > 0 {
			s.Errorf("it does not wait: %s", later)
		}
	case replies:
		now := s.newRequest(request)
		now.serve()
		s.check(now, want)
	default:
		s.Fatalf("no line of a script: %s", request)
	}
}

// listed returns the values of a list, in which 3..5 are 3, 4 and 5.
func (s *script) listed(text string) (values []string) {
	s.Helper()
	for _, word := range words(text) {
		first, last := 0, 0
		if n, err := fmt.Sscanf(word, "%d..%d", &first, &last); n != 2 || err != nil {
			values = append(values, s.expand(word))
			continue
		}
		for ; first <= last; first++ {
			values = append(values, strconv.Itoa(first))
		}
	}
	return values
}

// repeat runs lines with each group of values. What they capture is forgotten if they are a loop.
func (s *script) repeat(names, values []string, lines []scriptLine, loop bool) {
	s.Helper()
	if len(names) == 0 {
		s.run(lines)
		return
	}
	if len(values) == 0 || len(values)%len(names) != 0 {
		s.Fatalf("%d values for %v", len(values), names)
	}
	for len(values) > 0 {
		outer := maps.Clone(s.values)
		for i, name := range names {
			s.values[name[1:]] = values[i]
		}
		s.run(lines)
		for name := range s.values {
			if _, known := outer[name]; !known && (loop || slices.Contains(names, "$"+name)) {
				delete(s.values, name)
			}
		}
		maps.Copy(s.values, outer)
		values = values[len(names):]
	}
}

func (s *script) duration(text string) time.Duration {
	s.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

func (s *script) blocked() {
	s.Helper()
	synctest.Wait()
	for _, all := range s.waiting {
		for _, call := range all {
			if len(call.done) > 0 {
				s.Errorf("replied already: %s", call)
			}
		}
	}
}

func (s *script) state() string {
	s.Helper()
	if _, err := s.Node.Read(context.Background(), calls.Consistency{}); err != nil { // so that a follower has it
		s.Fatal(err)
	}
	return StateOf(s.T, s.Node)
}

// commands checks how many the machine was given; a cluster does not count them.
func (s *script) commands(want string) {
	s.Helper()
	node, ok := s.Node.(*Node)
	if !ok {
		return
	}
	if more := strconv.Itoa(len(node.Calls) - s.given); more != want {
		s.Errorf("%s commands, want %s", more, want)
	}
	s.given = len(node.Calls)
}

func (s *script) scriptSemaphore(rest string) {
	s.Helper()
	parts := append(s.listed(rest), "")
	s.Semaphore(parts[0], parts[1], parts[2])
}

// handler returns the handler that gets the next request.
func (s *Site) handler() *httpapi.Handler {
	if s.turn == nil {
		return s.Handler
	}
	return s.turn()
}
