package openapitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Sent is the body of a request, as far as the server has read it.
type Sent struct {
	io.ReadCloser
	text   bytes.Buffer
	length int64
	ended  bool
}

// Record has a request's body recorded while it is read.
func Record(r *http.Request) *Sent {
	s := &Sent{ReadCloser: r.Body, length: r.ContentLength}
	if r.Body == nil || r.Body == http.NoBody {
		s.ended = true
		return s
	}
	r.Body = s
	return s
}

// Read implements io.Reader.
func (s *Sent) Read(into []byte) (int, error) {
	n, err := s.ReadCloser.Read(into)
	s.text.Write(into[:n])
	s.ended = s.ended || errors.Is(err, io.EOF)
	return n, err
}

// whole reports whether all of the body was read.
func (s *Sent) whole() bool { return s.ended || int64(s.text.Len()) == s.length }

// undescribed are the rules of requests that JSON Schema has no words for: the beginning of
// the refusal's detail, and what stands in a request that breaks the rule.
var undescribed = []struct {
	detail  string
	request *regexp.Regexp
}{
	{"The body is not one JSON document", regexp.MustCompile("")},
	{"Give wait in the query or in the body", regexp.MustCompile(`wait=.*wait`)},
	{"A stream begins with the last events, or since one", regexp.MustCompile(`last=.*since=|since=.*last=`)},
	{"A try never waits", regexp.MustCompile(`wait`)},
	{"A wait needs an index", regexp.MustCompile(`wait=`)},
	{"A wait is ", regexp.MustCompile(`[0-9]{5,}|[0-9]{3}s|1[0-9]m`)}, // the node's limit
	{"A ttl is a duration", regexp.MustCompile(`[0-9]{6,}`)},
	{"An item needs a value", regexp.MustCompile(`PUT|item-`)},
	{"Give value or value_base64", regexp.MustCompile(`"value".*"value_base64"|"value_base64".*"value"`)},
	{"The value of an item has up to", regexp.MustCompile(`.{900}`)},
	{"A release names the session", regexp.MustCompile(`"release"`)},
	{"Give if_version or session, not both", regexp.MustCompile(`"session"`)},
	{"A session with about", regexp.MustCompile(`"metadata"|"on_end"`)},
	{"An item_delay is ", regexp.MustCompile(`[0-9]{2,}`)},
	{"An about is a text", regexp.MustCompile(`.{900}`)},
	{"Flags are a whole number", regexp.MustCompile(`[0-9]{20}`)},
	{"If-Match names an epoch already", regexp.MustCompile(`epoch`)},
	{"Metadata is ", regexp.MustCompile(`.{900}`)},
	{"The semaphore does not exist yet", regexp.MustCompile(`^PUT|"op":"put"`)},
	{"The semaphores of an ", regexp.MustCompile(`"mode":"all"`)},
	{"semaphores: This list names a semaphore twice", regexp.MustCompile(`"name".*"name"`)},
	{"A batch has up to ", regexp.MustCompile(`},{`)},
	{"This is not a cursor of this list", regexp.MustCompile(`cursor=[A-Za-z0-9_-]+`)},
	{"Last-Event-ID: An event's id", regexp.MustCompile(`Last-Event-Id:\[[0-9.]{11,}`)},           // numbers of 63 and 31 bits
	{"A peer is host:port", regexp.MustCompile(`:[0-9]{5}"|"peer":"[^"]*([0-9:]\]?|//.*):[0-9]`)}, // a port of 16 bits, the address of one host
	{"This is not a session id", regexp.MustCompile(`[0-9]{20}`)},                                 // 2^64 and more
}

// Check fails the test if a request of the native API or its reply is not as the description
// has them. A request that was carried out must be described, and one that was refused as
// invalid must not be, but for the rules that a description can't express.
func Check(t testing.TB, r *http.Request, sent *Sent, w *httptest.ResponseRecorder) {
	t.Helper()
	d, err := Loaded()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(r.URL.Path, "/"+version+"/") || r.Method == http.MethodOptions || w.Code == 499 {
		return
	}
	request := fmt.Sprintf("%s %s %v %.3000s", r.Method, r.URL, r.Header, &sent.text)
	asked := fmt.Sprintf("%s: %d %.3000s", request, w.Code, w.Body)
	of := d.route(r)
	if of == nil {
		if w.Code < 400 {
			t.Errorf("openapi.json has no such route: %s", asked)
		}
		return
	}
	if err := d.reply(of, w); err != nil {
		t.Errorf("openapi.json does not describe the reply, %v: %s", err, asked)
		return
	}
	if err := compare(d.request(of, r, sent), request, w.Code, w.Body.Bytes()); err != nil {
		t.Errorf("%v: %s", err, asked)
	}
	if of.at == batch && w.Code == http.StatusOK {
		if err := d.operations(sent, request, w.Body.Bytes()); err != nil {
			t.Errorf("%v: %s", err, asked)
		}
	}
}

const (
	batch     = "#/paths/~1v1~1batch/post"
	operation = "#/components/schemas/Operation"
)

// compare compares what the description says of a request with its reply.
func compare(wrong error, request string, status int, reply []byte) error {
	if status < 300 && wrong != nil {
		return fmt.Errorf("openapi.json does not describe a request that is carried out, %w", wrong)
	}
	var refusal struct{ Code, Detail string }
	if status != http.StatusBadRequest || wrong != nil || json.Unmarshal(reply, &refusal) != nil || refusal.Code != "invalid-request" {
		return nil
	}
	for _, rule := range undescribed {
		if strings.HasPrefix(refusal.Detail, rule.detail) && rule.request.MatchString(request) {
			return nil
		}
	}
	return errors.New("openapi.json describes a request that is refused as invalid")
}

// operations compares each operation of a batch with its result.
func (d *Description) operations(sent *Sent, request string, reply []byte) error {
	var given struct{ Operations []any }
	var got struct {
		Results []struct {
			Status int
			Body   json.RawMessage
		}
	}
	if err := errors.Join(decode(sent.text.Bytes(), &given), decode(reply, &got)); err != nil {
		return err
	}
	for i, one := range got.Results {
		if err := compare(d.Differs(plain(given.Operations[i]), operation), request, one.Status, one.Body); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return nil
}

// reply compares the status, the type and the body of a reply.
func (d *Description) reply(of *route, w *httptest.ResponseRecorder) error {
	status := strconv.Itoa(w.Code)
	reply, known := of.operation["responses"].(map[string]any)[status].(map[string]any)
	if !known {
		return errors.New("no such status")
	}
	reply, at := d.Resolve(reply, of.at+"/responses/"+status)
	content, _ := reply["content"].(map[string]any)
	if w.Body.Len() == 0 {
		return nil // of a HEAD, or none is described
	}
	kind := w.Header().Get("Content-Type")
	body, known := content[kind].(map[string]any)
	if !known {
		return fmt.Errorf("no content of type %q", kind)
	}
	if body["schema"] == nil {
		return nil
	}
	var value any
	if err := decode(w.Body.Bytes(), &value); err != nil {
		return err
	}
	return d.Differs(value, at+"/content/"+strings.ReplaceAll(kind, "/", "~1")+"/schema")
}

// request compares the parameters and the body of a request. The body of a batch is compared
// by its operations.
func (d *Description) request(of *route, r *http.Request, sent *Sent) error {
	if err := d.parameters(of, r); err != nil {
		return err
	}
	body, takes := of.operation["requestBody"].(map[string]any)
	isJSON := !takes
	if takes {
		_, isJSON = body["content"].(map[string]any)["application/json"]
	}
	if !sent.whole() || !isJSON {
		return nil
	}
	var value any = map[string]any{}
	if sent.text.Len() > 0 {
		if err := decode(sent.text.Bytes(), &value); err != nil {
			return err
		}
	}
	value = plain(value)
	if members, is := value.(map[string]any); is && of.at == batch {
		if _, listed := members["operations"].([]any); listed {
			members["operations"] = []any{}
		}
	}
	if takes {
		return d.Differs(value, of.at+"/requestBody/content/application~1json/schema")
	}
	if members, is := value.(map[string]any); !is || len(members) > 0 {
		return errors.New("no body")
	}
	return nil
}

// heeded returns the headers that a request may have only where they are described. A read may
// have a key, since it may be repeated anyhow.
func heeded(r *http.Request) []string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return []string{"If-Match", "If-None-Match"}
	}
	return []string{"If-Match", "If-None-Match", "Idempotency-Key"}
}

// parameters compares the path, the query and the headers.
func (d *Description) parameters(of *route, r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	given := map[string][]string{}
	for name, values := range query {
		given["query "+name] = values
	}
	for i, text := range of.path.FindStringSubmatch(r.URL.EscapedPath())[1:] {
		if text, err = url.PathUnescape(text); err != nil {
			return err
		}
		given["path "+of.params[i]] = []string{text}
	}
	for _, name := range heeded(r) {
		if values := r.Header.Values(name); values != nil {
			given["header "+name] = values
		}
	}
	for i, listed := range of.operation["parameters"].([]any) {
		p := listed.(map[string]any)
		name := fmt.Sprintf("%v %v", p["in"], p["name"])
		values, has := given[name]
		if p["in"] == "header" {
			values, has = r.Header[http.CanonicalHeaderKey(p["name"].(string))]
		}
		delete(given, name)
		if !has && p["required"] == true {
			return fmt.Errorf("no %s", name)
		}
		if !has {
			continue
		}
		value, err := typed(values, p["schema"].(map[string]any))
		if err == nil {
			err = d.Differs(value, fmt.Sprintf("%s/parameters/%d/schema", of.at, i))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name := range given {
		return fmt.Errorf("no parameter in %s", name)
	}
	return nil
}

var digits = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// typed returns the values of a parameter as its schema has them.
func typed(values []string, schema map[string]any) (any, error) {
	if schema["type"] == "array" {
		all := make([]any, len(values))
		for i := range values {
			all[i] = values[i]
		}
		return all, nil
	}
	if len(values) != 1 {
		return nil, errors.New("given more than once")
	}
	switch text := values[0]; {
	case schema["type"] == "integer" && digits.MatchString(text):
		return json.Number(text), nil
	case schema["type"] == "boolean" && (text == "true" || text == "false"):
		return text == "true", nil
	default:
		return text, nil
	}
}

// decode reads JSON with numbers as they are spelled.
func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("more than one document")
	}
	return nil
}

// plain replaces the numbers with a fraction or an exponent, which are no integers in a
// request of this API, by texts.
func plain(value any) any {
	switch value := value.(type) {
	case json.Number:
		if strings.ContainsAny(value.String(), ".eE") {
			return value.String()
		}
	case map[string]any:
		for name, of := range value {
			value[name] = plain(of)
		}
	case []any:
		for i, of := range value {
			value[i] = plain(of)
		}
	}
	return value
}
