package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/test/openapitest"
)

// sent is a request of a script, and then its reply.
type sent struct {
	handler *httpapi.Handler
	request *http.Request
	record  *openapitest.Sent
	reply   *httptest.ResponseRecorder
	took    time.Duration
	done    chan struct{} // has an element when the reply is there
}

// newRequest reads "@who METHOD TARGET BODY [Name: value]". A body is JSON unless a header
// says otherwise; the native API needs no type.
func (s *script) newRequest(text string) *sent {
	s.Helper()
	text, headers := cutHeaders(s.expand(text))
	who, ok := strings.CutPrefix(text, "@")
	if ok {
		who, text, _ = strings.Cut(who, " ")
		headers = append(headers, [2]string{"Authorization", "Bearer secret-" + who})
	}
	parts := append(strings.SplitN(text, " ", 3), "", "")
	method, target, body := parts[0], parts[1], parts[2]
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" && !strings.HasPrefix(target, "/v1/") {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		if h[0] == "Content-Type" {
			r.Header.Del(h[0])
		}
		r.Header.Add(h[0], h[1])
	}
	return &sent{s.handler(), r, openapitest.Record(r), httptest.NewRecorder(), 0, make(chan struct{}, 1)}
}

func (x *sent) serve() {
	began := time.Now()
	x.handler.ServeHTTP(x.reply, x.request)
	x.took = time.Since(began)
	x.done <- struct{}{}
}

func (x *sent) answer() Answer {
	header, body := x.reply.Header(), x.reply.Body.String()
	if x.request.Method == http.MethodHead {
		body = "" // as the server does
	}
	return Answer{x.reply.Code, header.Get("Content-Type"), body, header.Get}
}

func (x *sent) String() string {
	return x.request.Method + " " + x.request.RequestURI + ": " + x.answer().String()
}

// later sends a request, and returns once it waits or has its reply.
func (s *script) later(text string) *sent {
	s.Helper()
	x := s.newRequest(text)
	go x.serve()
	if s.turn != nil {
		time.Sleep(200 * time.Millisecond) // virtual: its entry is applied everywhere
	}
	synctest.Wait()
	return x
}

var (
	headersAtEnd = regexp.MustCompile(`(?: \[[A-Za-z][A-Za-z0-9-]*: ?[^\]]*\])+$`)
	oneHeader    = regexp.MustCompile(`\[([A-Za-z][A-Za-z0-9-]*): ?([^\]]*)\]`)
	dialectReply = regexp.MustCompile(`^\d+ (text|raw|json|utf8json|bare|problem|[a-z]+/\S+)( |$)`)
	placeholder  = regexp.MustCompile(`\$([%"]?)(\w+)|\$\[([^\]*]+)\*(\d+)\]`)
	members      = regexp.MustCompile(`^([\w.]+)\((.*)\)$`)
	member       = regexp.MustCompile(`(?s)^([^=~!]+)(!?[=~])(.*)$`)
)

// cutHeaders returns a line without the headers at its end, and these.
func cutHeaders(text string) (line string, headers [][2]string) {
	at := headersAtEnd.FindStringIndex(text)
	if at == nil {
		return text, nil
	}
	for _, h := range oneHeader.FindAllStringSubmatch(text[at[0]:], -1) {
		headers = append(headers, [2]string{h[1], h[2]})
	}
	return text[:at[0]], headers
}

// check compares a reply with a REPLY of a script.
func (s *script) check(x *sent, want string) {
	s.Helper()
	s.checked++
	if first, rest, _ := strings.Cut(want, " "); strings.HasPrefix(first, "$") {
		want = strings.TrimSpace(s.expand(first) + " " + rest)
	}
	want = s.checkHeaders(x, want)
	if dialectReply.MatchString(want) {
		if got := x.answer().String(); !s.match(got, want) {
			s.Errorf("got  %s\nwant %s", got, want)
		}
		return
	}
	reply := (&API{T: s.T}).judge(x.request, x.record, x.reply)
	all := words(want)
	status, err := strconv.Atoi(all[0])
	if err != nil {
		s.Fatal(err)
	}
	if all = all[1:]; len(all) > 0 && !strings.ContainsAny(all[0], "=~(") {
		reply.RefusedWith(status, all[0])
		all = all[1:]
	} else {
		reply.Is(status)
	}
	s.members(reply, "", all)
}

// checkHeaders checks the headers of a REPLY, and the time that it took, and returns the rest of it.
func (s *script) checkHeaders(x *sent, want string) (rest string) {
	s.Helper()
	rest, headers := cutHeaders(want)
	for _, h := range headers {
		if h[0] == "took" {
			if d := s.duration(s.expand(h[1])); x.took < d-time.Millisecond || x.took > d+100*time.Millisecond {
				s.Errorf("it took %v, want %v", x.took, d)
			}
		} else if got := x.reply.Header().Get(h[0]); !s.match(got, h[1]) {
			s.Errorf("%s is %q, want %q", h[0], got, h[1])
		}
	}
	return rest
}

// members checks members below a path.
func (s *script) members(reply Reply, below string, all []string) {
	s.Helper()
	for _, text := range all {
		if m := members.FindStringSubmatch(text); m != nil {
			s.members(reply, below+m[1]+".", words(m[2]))
			continue
		}
		m := member.FindStringSubmatch(text)
		if m == nil {
			s.Fatalf("no member: %s", text)
		}
		path, operator, want := below+m[1], m[2], unquote(m[3])
		got := reply.Member(path)
		if path == "body" {
			got = reply.Text
		}
		holds := false
		if strings.HasSuffix(operator, "=") {
			holds = s.match(got, want)
		} else {
			holds = strings.Contains(got, s.expand(want))
		}
		if holds == (operator[0] == '!') {
			s.Errorf("%s: %s is %s, want %s%s: %.3000s", reply.asked, path, got, operator, want, reply.Text)
		}
	}
}

// batch sends operations and checks the result of each, and headers of the whole reply.
func (s *script) batch(head, headersWanted string, block []scriptLine) {
	s.Helper()
	who, headers := cutHeaders(" " + head)
	var operations, results []string
	for _, line := range block {
		operation, want, _ := strings.Cut(line.text, "=> ")
		operations, results = append(operations, s.expand(strings.TrimSpace(operation))), append(results, want)
	}
	text := strings.TrimSpace(who + ` POST /v1/batch {"operations":[` + strings.Join(operations, ",") + `]}`)
	for _, h := range headers {
		text += " [" + h[0] + ": " + h[1] + "]"
	}
	x := s.newRequest(text)
	x.serve()
	s.checked++
	s.checkHeaders(x, " "+headersWanted)
	reply := (&API{T: s.T}).judge(x.request, x.record, x.reply).Is(200, "results.length="+strconv.Itoa(len(block)))
	for i, want := range results {
		at, all := fmt.Sprintf("results.%d.", i), words(want)
		checks := []string{"status=" + all[0]}
		for _, text := range all[1:] {
			switch {
			case strings.HasPrefix(text, "replayed="):
				checks = append(checks, text)
			case !strings.ContainsAny(text, "=~("):
				checks = append(checks, "body.code="+text)
			default:
				checks = append(checks, "body."+text)
			}
		}
		if all[0] == "204" {
			checks = append(checks, "body=absent")
		}
		s.members(reply, at, checks)
	}
}

// words splits a text at the spaces that are in no quotes and in no brackets.
func words(text string) (all []string) {
	depth, quoted, begin := 0, false, 0
	end := func(i int) {
		if i > begin {
			all = append(all, unquote(text[begin:i]))
		}
		begin = i + 1
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case c == ' ' && depth == 0:
			end(i)
		}
	}
	end(len(text))
	return all
}

// unquote returns a text without the quotes around it.
func unquote(text string) string {
	if plain, err := strconv.Unquote(text); err == nil && text[0] == '"' {
		return plain
	}
	return text
}

// expand replaces the placeholders of a text by their values.
func (s *script) expand(text string) string {
	s.Helper()
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		value, known := s.value(found)
		if !known && found != "$_" {
			s.Errorf("%s has no value yet", found)
		} else if !known {
			return found
		}
		return value
	})
}

// value returns the value of a placeholder.
func (s *script) value(found string) (value string, known bool) {
	m := placeholder.FindStringSubmatch(found)
	if m[4] != "" {
		times, err := strconv.Atoi(m[4])
		return strings.Repeat(m[3], times), err == nil
	}
	value, known = s.values[m[2]]
	switch m[1] {
	case "%":
		value = url.PathEscape(value)
	case `"`:
		encoded, _ := json.Marshal(value)
		value = string(encoded)
	}
	return value, known
}

// match compares a text, and gives placeholders without a value the text in their place.
func (s *script) match(got, want string) bool {
	s.Helper()
	var names []string
	pattern, at := "(?s)^", 0
	for _, i := range placeholder.FindAllStringIndex(want, -1) {
		pattern += regexp.QuoteMeta(want[at:i[0]])
		at = i[1]
		if value, known := s.value(want[i[0]:i[1]]); known {
			pattern += regexp.QuoteMeta(value)
		} else {
			pattern, names = pattern+"(.+?)", append(names, want[i[0]+1:i[1]])
		}
	}
	if names == nil && at == 0 {
		return got == want
	}
	found := regexp.MustCompile(pattern + regexp.QuoteMeta(want[at:]) + "$").FindStringSubmatch(got)
	if found == nil || names != nil && got == "absent" {
		return false
	}
	for i, name := range names {
		if name != "_" {
			s.values[name] = found[i+1]
		}
	}
	return true
}
