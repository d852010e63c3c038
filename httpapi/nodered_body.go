package httpapi

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
)

// keptMembers is the key of the metadata pair that holds the other members of a
// create, as one JSON object.
const keptMembers = "nodered"

// nodeREDMember is one member of a body; its value is JSON without space, and no
// object in it has a member twice.
type nodeREDMember struct {
	name  string
	value value
}

// nodeREDBody is a body in the order of its members, none of them twice.
type nodeREDBody []nodeREDMember

// readRequest reads what create, up and down have in common.
func (n *nodeRED) readRequest(c echo.Context) (body nodeREDBody, name, key string, err error) {
	if key, err = nodeREDKey(c); err != nil {
		return nil, "", "", err
	}
	if body, err = n.readMembers(c); err != nil {
		return nil, "", "", err
	}
	n.doneWithBody(c) // what follows may wait for long
	given, _ := body.member("name").text()
	name, err = semaphoreName("name", given)
	return body, name, key, err
}

// readMembers reads a body as the flow does, JSON or a form. JSON is also read
// under any other type, and under a form's, which curl -d sends.
func (n *nodeRED) readMembers(c echo.Context) (nodeREDBody, error) {
	r := c.Request()
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	kind, options, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(options["charset"])
	if err == nil && charset != "" && charset != "utf-8" && charset != "utf8" {
		return nil, nodeREDRefusal(http.StatusUnsupportedMediaType, "A body is text in UTF-8.")
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	data, err := n.receive(c, n.cfg.BodyBytes)
	if err != nil {
		return nil, err
	}
	doc := document(bytes.TrimPrefix(data, []byte("\uFEFF")))
	switch {
	case len(doc) == 0:
		return nil, nil
	case kind == "application/x-www-form-urlencoded" && doc[0] != '{':
		return readForm(string(doc))
	}
	if fault := checkLooseJSON(doc); fault != nil {
		return nil, badBody(fault)
	}
	if !doc.isObject() {
		return nil, invalid("", "The body is a JSON object.")
	}
	return readObject(doc), nil
}

// readObject takes the members of a checked object. Of one that is given twice
// the last value counts, at the first one's place.
func readObject(v value) nodeREDBody {
	var body nodeREDBody
	places := map[string]int{}
	for raw, of := range v.members() {
		name := string(raw)
		place, again := places[name]
		if !again {
			place = len(body)
			places[name] = place
			body = append(body, nodeREDMember{name: name})
		}
		body[place].value = compact(of)
	}
	return body
}

// compact answers a checked value without space and repeated members. Numbers
// keep their digits.
func compact(v value) value {
	switch {
	case v.isObject():
		return value(readObject(v).encode())
	case v.isArray():
		out := []byte{'['}
		for item := range v.items() {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, compact(item)...)
		}
		return append(out, ']')
	}
	if text, is := v.text(); is {
		return appendPlain(nil, text)
	}
	return bytes.Clone(v)
}

// readForm reads a=1&b=2; a member that is given twice is a list.
func readForm(text string) (nodeREDBody, error) {
	var body nodeREDBody
	lists := map[string][][]byte{}
	for _, pair := range strings.Split(text, "&") {
		name, of, _ := strings.Cut(pair, "=")
		plainName, plainValue := formBytes(name), formBytes(of)
		if !utf8.Valid(plainName) || !utf8.Valid(plainValue) {
			return nil, invalid("", "The form is not text in UTF-8.")
		}
		name = string(plainName)
		if name == "" {
			continue
		}
		if lists[name] == nil {
			body = append(body, nodeREDMember{name: name})
		}
		lists[name] = append(lists[name], appendPlain(nil, string(plainValue)))
	}
	for i := range body {
		given := lists[body[i].name]
		body[i].value = given[0]
		if len(given) > 1 {
			body[i].value = append(append([]byte{'['}, bytes.Join(given, []byte{','})...), ']')
		}
	}
	return body, nil
}

// noMember stands for a member that is absent: no text, number or list.
var noMember = value("null")

func (b nodeREDBody) member(name string) value {
	for i := range b {
		if b[i].name == name {
			return b[i].value
		}
	}
	return noMember
}

func (b nodeREDBody) has(name string) bool {
	for i := range b {
		if b[i].name == name {
			return true
		}
	}
	return false
}

// with answers the body with another value of a member that it has.
func (b nodeREDBody) with(name string, v value) nodeREDBody {
	other := append(nodeREDBody(nil), b...)
	for i := range other {
		if other[i].name == name {
			other[i].value = v
		}
	}
	return other
}

// encode writes the body as JSON.
func (b nodeREDBody) encode() []byte {
	out := []byte{'{'}
	for i := range b {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(appendPlain(out, b[i].name), ':'), b[i].value...)
	}
	return append(out, '}')
}

// metadata answers the pair that keeps the members beside name and value, if
// there are any.
func (b nodeREDBody) metadata() ([]fsm.Pair, error) {
	var others nodeREDBody
	for _, m := range b {
		if m.name != "name" && m.name != "value" {
			others = append(others, m)
		}
	}
	if len(others) == 0 {
		return nil, nil
	}
	pairs := []fsm.Pair{{Key: keptMembers, Value: string(others.encode())}}
	if !fsm.ValidMetadata(pairs) {
		return nil, invalid("", "The members beside name and value take up to 1,017 bytes of JSON in all.")
	}
	return pairs, nil
}

// nodeREDMembers answers what was kept of a create, as it follows the value:
// ,"member":…. What somebody else has put there is left out unless it is such an
// object.
func nodeREDMembers(pairs []fsm.Pair) (members []byte) {
	for _, p := range pairs {
		doc := document([]byte(p.Value))
		if p.Key != keptMembers || checkJSON(doc) != nil || !doc.isObject() {
			continue
		}
		for _, m := range readObject(doc) {
			if m.name != "name" && m.name != "value" {
				members = append(append(appendPlain(append(members, ','), m.name), ':'), m.value...)
			}
		}
	}
	return members
}

// appendPlain quotes a text as JavaScript does, which leaves <, > and & alone.
func appendPlain(out []byte, text string) []byte {
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can always be encoded
	return append(out, bytes.TrimSuffix(quoted.Bytes(), []byte{'\n'})...)
}
