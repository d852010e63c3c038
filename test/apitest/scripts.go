package apitest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// RunScripts runs the scripts of a folder, which are tables of a dialect's contract, in
// each place. A line is one of
//
//	semaphore NAME PERMITS [LEVEL]   makes or changes one; NAME may be quoted
//	peer ID TTL                      makes a peer
//	advance DURATION
//	METHOD TARGET [BODY] => REPLY    the body is JSON
//	& METHOD TARGET [BODY]           asks, and goes on while it blocks
//	=> REPLY                         of the oldest that was left blocked
//	blocked                          all of them still wait for their replies
//
// A REPLY is the status, "text", "json", "problem" or "bare" (without a
// Content-Type), and the whole body, in which \n is a line feed.
func RunScripts(t *testing.T, folder string, change ...func(*Config)) {
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
			InEachPlace(t, func(s *Site) { s.run(file, string(text)) }, change...)
		})
	}
}

func (s *Site) run(file, text string) {
	s.Helper()
	var blocked []<-chan Answer
	replies := 0
	for i, line := range strings.Split(text, "\n") {
		line, want, answers := strings.Cut(line, "=> ")
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		failed := s.Failed()
		switch {
		case line == "" && answers:
			s.Is(<-blocked[0], want)
			blocked, replies = blocked[1:], replies+1
		case line == "", strings.HasPrefix(line, "#"):
		case word == "blocked":
			synctest.Wait()
			for _, b := range blocked {
				if len(b) > 0 {
					s.Errorf("answered already: %s", <-b)
				}
			}
		case word == "semaphore":
			s.scriptSemaphore(rest)
		case word == "peer":
			id, ttl, _ := strings.Cut(rest, " ")
			s.Peer(id, ttl)
		case word == "advance":
			d, err := time.ParseDuration(rest)
			if err != nil {
				s.Fatal(err)
			}
			s.Advance(d)
		case word == "&":
			request, body := scriptRequest(rest)
			blocked = append(blocked, s.Later(request, body))
		case answers:
			request, body := scriptRequest(line)
			s.Is(s.Ask(request, body), want)
			replies++
		default:
			s.Fatalf("%s:%d: %q", file, i+1, line)
		}
		if s.Failed() && !failed {
			s.Errorf("%s:%d: %s", file, i+1, line)
		}
	}
	if replies < 5 || len(blocked) > 0 {
		s.Errorf("%s: %d answers checked, %d left blocked", file, replies, len(blocked))
	}
}

func (s *Site) scriptSemaphore(rest string) {
	s.Helper()
	name, numbers, _ := strings.Cut(rest, " ")
	if strings.HasPrefix(rest, `"`) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			s.Fatal(err)
		}
		name, _ = strconv.Unquote(quoted)
		numbers = strings.TrimSpace(rest[len(quoted):])
	}
	permits, level, _ := strings.Cut(numbers, " ")
	s.Semaphore(name, permits, level)
}

// scriptRequest splits "METHOD TARGET BODY".
func scriptRequest(text string) (line, body string) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) == 3 {
		body = parts[2]
	}
	return parts[0] + " " + parts[1], body
}
