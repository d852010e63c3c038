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

// Check fails the test if a request of the native API or its reply differs from the description.
// A request that was carried out must be described. A request that was refused as
// invalid must not be described, except where it breaks a rule that a description can't express.
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
	fail := func(err error) { t.Errorf("%v: %s: %d %.3000s", err, request, w.Code, w.Body) }
	route := d.route(r)
	if route == nil {
		if w.Code < 400 {
			fail(errors.New("openapi.json has no such route"))
		}
		return
	}
	if err := d.checkReply(route, w); err != nil {
		fail(fmt.Errorf("openapi.json does not describe the reply, %w", err))
		return
	}
	if err := compareVerdicts(d.checkRequest(route, r, sent), request, w.Code, w.Body.Bytes()); err != nil {
		fail(err)
	}
	if route.at == batch && w.Code == http.StatusOK {
		if err := d.checkOperations(sent, request, w.Body.Bytes()); err != nil {
			fail(err)
		}
	}
}

// Pointers into the description.
const (
	batch     = "#/paths/~1v1~1batch/post"
	operation = "#/components/schemas/Operation"
)

// checkReply compares the status, the type and the body of a reply.
func (d *Description) checkReply(route *route, w *httptest.ResponseRecorder) error {
	status := strconv.Itoa(w.Code)
	reply, known := route.operation["responses"].(map[string]any)[status].(map[string]any)
	if !known {
		return errors.New("no such status")
	}
	reply, at := d.Resolve(reply, route.at+"/responses/"+status)
	content, _ := reply["content"].(map[string]any)
	if w.Body.Len() == 0 {
		return nil // of a HEAD, or no body is described
	}
	mediaType := w.Header().Get("Content-Type")
	body, known := content[mediaType].(map[string]any)
	if !known {
		return fmt.Errorf("no content of type %q", mediaType)
	}
	if body["schema"] == nil {
		return nil
	}
	var value any
	if err := decode(w.Body.Bytes(), &value); err != nil {
		return err
	}
	return d.Differs(value, at+"/content/"+strings.ReplaceAll(mediaType, "/", "~1")+"/schema")
}

// compareVerdicts compares what the description says about a request, an error or nil, with the server's reply.
func compareVerdicts(described error, request string, status int, reply []byte) error {
	if status < 300 && described != nil {
		return fmt.Errorf("openapi.json does not describe a request that is carried out, %w", described)
	}
	var refusal struct{ Code, Detail string }
	if status != http.StatusBadRequest || described != nil || json.Unmarshal(reply, &refusal) != nil || refusal.Code != "invalid-request" {
		return nil
	}
	for _, rule := range undescribed {
		if strings.HasPrefix(refusal.Detail, rule.detail) && rule.request.MatchString(request) {
			return nil
		}
	}
	return errors.New("openapi.json describes a request that is refused as invalid")
}

// checkOperations compares each operation of a batch with its result.
func (d *Description) checkOperations(sent *Sent, request string, reply []byte) error {
	var body struct{ Operations []any }
	var results struct {
		Results []struct {
			Status int
			Body   json.RawMessage
		}
	}
	if err := errors.Join(decode(sent.text.Bytes(), &body), decode(reply, &results)); err != nil {
		return err
	}
	for i, result := range results.Results {
		described := d.Differs(quoteFractions(body.Operations[i]), operation)
		if err := compareVerdicts(described, request, result.Status, result.Body); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return nil
}

// checkRequest compares the parameters and the body of a request.
func (d *Description) checkRequest(route *route, r *http.Request, sent *Sent) error {
	if err := d.checkParameters(route, r); err != nil {
		return err
	}
	return d.checkBody(route, sent)
}

// checkParameters compares the path, the query and the headers.
func (d *Description) checkParameters(route *route, r *http.Request) error {
	values, err := readParameters(route, r)
	if err != nil {
		return err
	}
	for i, listed := range route.operation["parameters"].([]any) {
		parameter := listed.(map[string]any)
		name := fmt.Sprintf("%v %v", parameter["in"], parameter["name"])
		texts, present := values[name]
		if parameter["in"] == "header" {
			texts, present = r.Header[http.CanonicalHeaderKey(parameter["name"].(string))]
		}
		delete(values, name)
		if !present && parameter["required"] == true {
			return fmt.Errorf("no %s", name)
		}
		if !present {
			continue
		}
		value, err := typed(texts, parameter["schema"].(map[string]any))
		if err == nil {
			err = d.Differs(value, fmt.Sprintf("%s/parameters/%d/schema", route.at, i))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name := range values {
		return fmt.Errorf("no parameter in %s", name)
	}
	return nil
}

// readParameters returns the values in a request that must be described, by "query epoch" or "path id".
func readParameters(route *route, r *http.Request) (map[string][]string, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	values := map[string][]string{}
	for name, texts := range query {
		values["query "+name] = texts
	}
	for i, text := range route.path.FindStringSubmatch(r.URL.EscapedPath())[1:] {
		if text, err = url.PathUnescape(text); err != nil {
			return nil, err
		}
		values["path "+route.params[i]] = []string{text}
	}
	headers := []string{"If-Match", "If-None-Match"}
	if r.Method != http.MethodGet && r.Method != http.MethodHead { // a read may have a key, since it may be repeated anyhow
		headers = append(headers, "Idempotency-Key")
	}
	for _, name := range headers {
		if texts := r.Header.Values(name); texts != nil {
			values["header "+name] = texts
		}
	}
	return values, nil
}

var digits = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// typed returns the texts of a parameter in the type of its schema.
func typed(texts []string, schema map[string]any) (any, error) {
	if schema["type"] == "array" {
		values := make([]any, len(texts))
		for i := range texts {
			values[i] = texts[i]
		}
		return values, nil
	}
	if len(texts) != 1 {
		return nil, errors.New("given more than once")
	}
	switch text := texts[0]; {
	case schema["type"] == "integer" && digits.MatchString(text):
		return json.Number(text), nil
	case schema["type"] == "boolean" && (text == "true" || text == "false"):
		return text == "true", nil
	default:
		return text, nil
	}
}

// checkBody compares the body of a request. The operations of a batch have verdicts of their
// own, see checkOperations.
func (d *Description) checkBody(route *route, sent *Sent) error {
	body, described := route.operation["requestBody"].(map[string]any)
	isJSON := !described
	if described {
		_, isJSON = body["content"].(map[string]any)["application/json"]
	}
	if !sent.complete() || !isJSON {
		return nil
	}
	var value any = map[string]any{}
	if sent.text.Len() > 0 {
		if err := decode(sent.text.Bytes(), &value); err != nil {
			return err
		}
	}
	value = quoteFractions(value)
	members, isObject := value.(map[string]any)
	if !described {
		if !isObject || len(members) > 0 {
			return errors.New("no body")
		}
		return nil
	}
	if isObject && route.at == batch {
		if _, listed := members["operations"].([]any); listed {
			members["operations"] = []any{}
		}
	}
	return d.Differs(value, route.at+"/requestBody/content/application~1json/schema")
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

// quoteFractions replaces the numbers with a fraction or an exponent, which are no integers in a
// request of this API, by texts. JSON Schema takes 1.0 for an integer.
func quoteFractions(value any) any {
	switch value := value.(type) {
	case json.Number:
		if strings.ContainsAny(value.String(), ".eE") {
			return value.String()
		}
	case map[string]any:
		for name, member := range value {
			value[name] = quoteFractions(member)
		}
	case []any:
		for i, member := range value {
			value[i] = quoteFractions(member)
		}
	}
	return value
}

// Sent is the body of a request, as far as the server has read it.
type Sent struct {
	io.ReadCloser
	text   bytes.Buffer
	length int64
	ended  bool
}

// Record records a request's body while it is read.
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

// complete reports whether all of the body was read.
func (s *Sent) complete() bool { return s.ended || int64(s.text.Len()) == s.length }

// undescribed are the rules of requests that JSON Schema has no words for: the beginning of
// the refusal's detail, and what is in a request that breaks the rule.
var undescribed = []struct {
	detail  string
	request *regexp.Regexp
}{
	{"The body is not one JSON document", regexp.MustCompile("")},
	{"Give wait in the query or in the body", regexp.MustCompile(`wait=.*wait`)},
	{"Give group in the query or in the body", regexp.MustCompile(`group=.*group`)},
	{"The name of a group is up to", regexp.MustCompile(`.{100}|%FF`)},
	{"The semaphore has no groups", regexp.MustCompile(`group`)},
	{"A limit per_group needs groups", regexp.MustCompile(`"per_group"|"groups":null`)},
	{"Permits are a whole number", regexp.MustCompile(`null`)}, // which of them depends on the semaphore
	{"A semaphore whose permits are null can't be paused", regexp.MustCompile(`"paused"|"permits":null`)},
	{"A window goes with none of", regexp.MustCompile(`"(window|slots|cooldown|on_lost|max_hold)"`)},
	{"A semaphore whose permits are null has no slots", regexp.MustCompile(`"slots"|"permits":null`)},
	{"A rule when_full needs max_waiting", regexp.MustCompile(`"when_full"|"max_waiting":null`)},
	{"An \"all\" request has one member at most", regexp.MustCompile(`"mode":"all"`)},
	{"A window is a duration", regexp.MustCompile(`[0-9]{2,}`)},
	{"A cooldown is a duration", regexp.MustCompile(`[0-9]{2,}`)},
	{"A max_hold is a duration", regexp.MustCompile(`[0-9]{2,}`)},
	{"An on_lost is", regexp.MustCompile(`[0-9]{2,}`)},
	{"A count is a whole number", regexp.MustCompile(`[0-9]{16}`)},
	{"A token is a whole number", regexp.MustCompile(`[0-9]{19}`)},
	{"A head_start is a duration", regexp.MustCompile(`[0-9]{2,}`)},
	{"A stream begins with the last events, or since an event", regexp.MustCompile(`last=.*since=|since=.*last=`)},
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
