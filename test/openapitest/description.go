package openapitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Description is an OpenAPI document, with the schemas of JSON Schema 2020-12.
type Description struct {
	Document map[string]any
	routes   []route
	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

// route is one operation of the description.
type route struct {
	method    string
	path      *regexp.Regexp // of the escaped path of a request
	params    []string       // of the path
	at        string         // the operation's place in the document, a JSON pointer
	operation map[string]any
}

// version is the version of the native API, with which its paths begin.
const version = "v1"

// address is the address of the document among the compiled schemas.
const address = "file:///openapi.json"

// Loaded is openapi.json, read once. Tests run in the folder of their package.
var Loaded = sync.OnceValues(func() (*Description, error) {
	for up := "."; len(up) < 30; up += "/.." {
		if text, err := os.ReadFile(filepath.Join(up, "httpapi", version, "openapi.json")); err == nil {
			return Parse(text)
		}
	}
	return nil, os.ErrNotExist
})

// Parse reads a description. A shape has no members but those that it names, though the
// document leaves room for members to come.
func Parse(text []byte) (*Description, error) {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	closeShapes(document)
	d := &Description{Document: document.(map[string]any), compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	for name, bits := range map[string]int{"int32": 32, "int64": 64} {
		d.compiler.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(v any) error { return fits(v, bits) }})
	}
	for _, limit := range []int{64, 128, 255, 512, 1024} {
		d.compiler.RegisterFormat(&jsonschema.Format{Name: fmt.Sprintf("bytes-%d", limit), Validate: func(v any) error {
			if text, ok := v.(string); ok && (len(text) > limit || !utf8.ValidString(text)) {
				return fmt.Errorf("more than %d bytes of UTF-8", limit)
			}
			return nil
		}})
	}
	for path, methods := range d.Document["paths"].(map[string]any) {
		pattern := parameter.ReplaceAllString(regexp.QuoteMeta(path), "([^/]+)")
		for method, operation := range methods.(map[string]any) {
			r := route{method: strings.ToUpper(method), path: regexp.MustCompile("^" + pattern + "$"), operation: operation.(map[string]any),
				at: "#/paths/" + strings.ReplaceAll(path, "/", "~1") + "/" + method}
			for _, name := range parameter.FindAllStringSubmatch(regexp.QuoteMeta(path), -1) {
				r.params = append(r.params, name[1])
			}
			d.routes = append(d.routes, r)
		}
	}
	return d, d.compiler.AddResource(address, document)
}

var parameter = regexp.MustCompile(`\\\{(\w+)\\\}`)

// closeShapes forbids the members that an object of a known shape does not name, and has
// lengths counted in bytes.
func closeShapes(at any) {
	switch at := at.(type) {
	case map[string]any:
		for _, member := range at {
			closeShapes(member)
		}
		if limit, ok := at["maxLength"].(json.Number); ok {
			at["format"] = "bytes-" + limit.String()
		}
		_, shaped := at["properties"].(map[string]any)
		if _, open := at["additionalProperties"]; shaped && !open && at["type"] == "object" {
			at["additionalProperties"] = false
		}
	case []any:
		for _, member := range at {
			closeShapes(member)
		}
	}
}

// fits refuses a number that is no integer of so many bits.
func fits(v any, bits int) error {
	n, ok := v.(json.Number)
	if !ok {
		return nil
	}
	_, err := strconv.ParseInt(n.String(), 10, bits)
	return err
}

// Operation returns the operation for a request, nil without one.
func (d *Description) Operation(r *http.Request) map[string]any {
	if found := d.route(r); found != nil {
		return found.operation
	}
	return nil
}

// route returns the operation for a request, nil without one.
func (d *Description) route(r *http.Request) *route {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var found *route
	for i := range d.routes {
		candidate := &d.routes[i]
		// A path with fewer parameters is the better one.
		if candidate.method == method && candidate.path.MatchString(r.URL.EscapedPath()) && (found == nil || len(candidate.params) < len(found.params)) {
			found = candidate
		}
	}
	return found
}

// Replies returns every reply of the description, "METHOD /path STATUS", and with the code of
// the problem after it where there is one.
func (d *Description) Replies() (all []string) {
	for _, route := range d.routes {
		path := strings.ReplaceAll(strings.TrimPrefix(route.at[:strings.LastIndex(route.at, "/")], "#/paths/"), "~1", "/")
		for status, listed := range route.operation["responses"].(map[string]any) {
			line := route.method + " " + path + " " + status
			reply, at := d.Resolve(listed.(map[string]any), "")
			if at == "" {
				all = append(all, line)
				continue
			}
			problem := reply["content"].(map[string]any)["application/problem+json"].(map[string]any)["schema"].(map[string]any)["allOf"].([]any)[1]
			for _, code := range problem.(map[string]any)["properties"].(map[string]any)["code"].(map[string]any)["enum"].([]any) {
				all = append(all, line+" "+code.(string))
			}
		}
	}
	return all
}

// Differs returns an error that says how a value differs from the schema at a JSON pointer, or nil if
// the value is valid.
func (d *Description) Differs(value any, pointer string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	schema, err := d.compiler.Compile(address + pointer)
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// Compile returns an error unless there is a sound schema at a JSON pointer.
func (d *Description) Compile(pointer string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.compiler.Compile(address + pointer)
	return err
}

// Resolve follows the $ref of an object of the description, which stands at a pointer.
func (d *Description) Resolve(object map[string]any, pointer string) (map[string]any, string) {
	ref, ok := object["$ref"].(string)
	if !ok {
		return object, pointer
	}
	var at any = d.Document
	for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(map[string]any)[step]
	}
	return at.(map[string]any), ref
}
