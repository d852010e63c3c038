package nodered

import (
	"bytes"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/strictjson"
)

// keptMembers is the key of a metadata pair. Its value is one JSON object with the other members of the request that
// created the semaphore.
const keptMembers = "nodered"

// member is one member of a body. Its value is JSON without space and without repeated members.
type member struct {
	name  string
	value strictjson.Value
}

// object is a body: its members in their order, each member once.
type object []member

// readRequest reads the parameters that create, up and down share.
func (n *dialect) readRequest(c echo.Context) (body object, name, key string, err error) {
	if key, err = exchange.IdempotencyKey(c.Request().Header); err != nil {
		return nil, "", "", err
	}
	if body, err = n.readMembers(c); err != nil {
		return nil, "", "", err
	}
	n.Bodies.Release(c) // the command may wait for long
	text, _ := body.member("name").Text()
	name, err = exchange.SemaphoreName("name", text)
	return body, name, key, err
}

// readMembers reads a body as the flow does: JSON or a form. A body that begins with "{" is JSON whatever its
// Content-Type is: curl -d sends JSON with the type of a form.
func (n *dialect) readMembers(c echo.Context) (object, error) {
	r := c.Request()
	if err := exchange.CheckEncoding(r); err != nil {
		return nil, err
	}
	kind, options, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(options["charset"])
	if err == nil && charset != "" && charset != "utf-8" && charset != "utf8" {
		return nil, exchange.Sentence(http.StatusUnsupportedMediaType, "A body is text in UTF-8.")
	}
	data, err := n.Bodies.Receive(c, n.Config.BodyBytes)
	if err != nil {
		return nil, err
	}
	doc := strictjson.Document(bytes.TrimPrefix(data, []byte("\uFEFF")))
	switch {
	case len(doc) == 0:
		return nil, nil
	case kind == "application/x-www-form-urlencoded" && doc[0] != '{':
		return readForm(string(doc))
	}
	if fault := strictjson.Check(doc, strictjson.Loose); fault != nil {
		return nil, exchange.BadBody(fault)
	}
	if !doc.IsObject() {
		return nil, exchange.Invalid("", "The body is a JSON object.")
	}
	return readObject(doc), nil
}

// readObject reads the members of a checked object. A repeated member gets its last value, at the place of the first.
func readObject(v strictjson.Value) object {
	var body object
	places := map[string]int{}
	for raw, value := range v.Members() {
		name := string(raw)
		place, again := places[name]
		if !again {
			place = len(body)
			places[name] = place
			body = append(body, member{name: name})
		}
		body[place].value = compact(value)
	}
	return body
}

// compact returns a checked value without space and repeated members. Numbers keep their digits.
func compact(v strictjson.Value) strictjson.Value {
	switch {
	case v.IsObject():
		return strictjson.Value(readObject(v).encode())
	case v.IsArray():
		out := []byte{'['}
		for item := range v.Items() {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, compact(item)...)
		}
		return append(out, ']')
	}
	if text, ok := v.Text(); ok {
		return exchange.AppendText(nil, text)
	}
	return bytes.Clone(v)
}

// readForm reads a form, a=1&b=2. The values of a repeated member become a list.
func readForm(text string) (object, error) {
	var body object
	lists := map[string][][]byte{}
	for _, pair := range strings.Split(text, "&") {
		name, value, _ := strings.Cut(pair, "=")
		plainName, plainValue := exchange.FormBytes(name), exchange.FormBytes(value)
		if !utf8.Valid(plainName) || !utf8.Valid(plainValue) {
			return nil, exchange.Invalid("", "The form is not text in UTF-8.")
		}
		name = string(plainName)
		if name == "" {
			continue
		}
		if lists[name] == nil {
			body = append(body, member{name: name})
		}
		lists[name] = append(lists[name], exchange.AppendText(nil, string(plainValue)))
	}
	for i := range body {
		values := lists[body[i].name]
		body[i].value = values[0]
		if len(values) > 1 {
			body[i].value = append(append([]byte{'['}, bytes.Join(values, []byte{','})...), ']')
		}
	}
	return body, nil
}

// noMember stands for an absent member. It is neither a text, a number nor a list.
var noMember = strictjson.Value("null")

func (b object) index(name string) int {
	return slices.IndexFunc(b, func(m member) bool { return m.name == name })
}

func (b object) has(name string) bool { return b.index(name) >= 0 }

func (b object) member(name string) strictjson.Value {
	if i := b.index(name); i >= 0 {
		return b[i].value
	}
	return noMember
}

// with returns the body with another value for a member that it has already.
func (b object) with(name string, v strictjson.Value) object {
	other := slices.Clone(b)
	other[b.index(name)].value = v
	return other
}

// encode writes the body as JSON.
func (b object) encode() []byte {
	out := []byte{'{'}
	for i := range b {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(exchange.AppendText(out, b[i].name), ':'), b[i].value...)
	}
	return append(out, '}')
}

// metadata returns the metadata pair that keeps the members besides name and value, if there are any.
func (b object) metadata() ([]fsm.Pair, error) {
	var others object
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
		return nil, exchange.Invalid("", "The members other than name and value take up to 1,017 bytes of JSON in all.")
	}
	return pairs, nil
}

// keptJSON returns the kept members as they follow the value in a reply: ,"member":…. It skips metadata of other APIs,
// whose value under this key may be no JSON object.
func keptJSON(pairs []fsm.Pair) (members []byte) {
	for _, p := range pairs {
		doc := strictjson.Document([]byte(p.Value))
		if p.Key != keptMembers || strictjson.Check(doc, strictjson.Strict) != nil || !doc.IsObject() {
			continue
		}
		for _, m := range readObject(doc) {
			if m.name != "name" && m.name != "value" {
				members = append(append(exchange.AppendText(append(members, ','), m.name), ':'), m.value...)
			}
		}
	}
	return members
}
