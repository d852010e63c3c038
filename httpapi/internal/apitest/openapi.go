package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// description is openapi.json, read once. Tests run in the folder of their package.
var description = sync.OnceValues(func() (whole map[string]any, err error) {
	for up := ""; len(up) < 30; up += "../" {
		text, missing := os.ReadFile(up + "httpapi/v1/openapi.json")
		if missing == nil {
			return whole, json.Unmarshal(text, &whole)
		}
		err = missing
	}
	return nil, err
})

// checkDescribed fails the test if the reply to a request of the native API is not one that
// openapi.json describes: its route, status, type, problem code, and every member of its
// body. The query of a request that was carried out must be described as well.
func checkDescribed(t testing.TB, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	whole, err := description()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(r.URL.Path, "/v1/") || r.Method == http.MethodOptions || w.Code == 499 {
		return
	}
	asked := fmt.Sprintf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
	d := &describing{whole: whole}
	route := d.route(r)
	if route == nil {
		if w.Code < 400 {
			t.Errorf("openapi.json has no such route: %s", asked)
		}
		return
	}
	if w.Code < 300 {
		for name := range r.URL.Query() {
			if !slices.ContainsFunc(route["parameters"].([]any), func(p any) bool {
				return p.(map[string]any)["in"] == "query" && p.(map[string]any)["name"] == name
			}) {
				t.Errorf("openapi.json has no parameter %s: %s", name, asked)
			}
		}
	}
	reply, known := route["responses"].(map[string]any)[strconv.Itoa(w.Code)].(map[string]any)
	if !known {
		t.Errorf("openapi.json has no such status: %s", asked)
		return
	}
	reply = d.resolve(reply)
	content, _ := reply["content"].(map[string]any)
	kind := w.Header().Get("Content-Type")
	if w.Body.Len() == 0 {
		return // of a HEAD, or none is described
	}
	body, known := content[kind].(map[string]any)
	if !known {
		t.Errorf("openapi.json has no content of type %q: %s", kind, asked)
		return
	}
	if schema, is := body["schema"].(map[string]any); is && strings.HasSuffix(kind, "json") {
		var value any
		decoder := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			t.Errorf("%v: %s", err, asked)
		}
		if wrong := d.differs(schema, value, "body"); wrong != "" {
			t.Errorf("openapi.json differs, %s: %s", wrong, asked)
		}
	}
}

// describing compares with one description.
type describing struct{ whole map[string]any }

// route returns the operation for a request, nil without one.
func (d *describing) route(r *http.Request) map[string]any {
	method := strings.ToLower(strings.Replace(r.Method, "HEAD", "GET", 1))
	var found map[string]any
	for path, methods := range d.whole["paths"].(map[string]any) {
		of, has := methods.(map[string]any)[method].(map[string]any)
		if !has {
			continue
		}
		pattern := "^" + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + "$"
		// A path without a parameter is the better one.
		if regexp.MustCompile(pattern).MatchString(r.URL.EscapedPath()) && (found == nil || !strings.Contains(path, "{name}")) {
			found = of
		}
	}
	return found
}

// resolve follows a $ref.
func (d *describing) resolve(schema map[string]any) map[string]any {
	ref, is := schema["$ref"].(string)
	if !is {
		return schema
	}
	var at any = d.whole
	for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(map[string]any)[step]
	}
	return at.(map[string]any)
}

// differs says how a value differs from a schema, "" if it does not. A member that the schema
// lacks is a difference, unless the schema names none.
func (d *describing) differs(schema map[string]any, value any, at string) string {
	schema = d.resolve(schema)
	if all, is := schema["allOf"].([]any); is {
		if wrong := d.differs(all[0].(map[string]any), value, at); wrong != "" {
			return wrong
		}
		codes := all[1].(map[string]any)["properties"].(map[string]any)["code"].(map[string]any)["enum"].([]any)
		if code := value.(map[string]any)["code"]; !slices.Contains(codes, code) {
			return fmt.Sprintf("%s has the code %v", at, code)
		}
		return ""
	}
	if !ofType(schema["type"], value) {
		return fmt.Sprintf("%s is no %v", at, schema["type"])
	}
	switch value := value.(type) {
	case map[string]any:
		return d.objectDiffers(schema, value, at)
	case []any:
		for i, item := range value {
			if wrong := d.differs(schema["items"].(map[string]any), item, fmt.Sprintf("%s.%d", at, i)); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

func (d *describing) objectDiffers(schema, value map[string]any, at string) string {
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, has := value[name.(string)]; !has {
			return fmt.Sprintf("%s has no %v", at, name)
		}
	}
	for name, of := range value {
		property, has := properties[name].(map[string]any)
		if !has {
			property, has = schema["additionalProperties"].(map[string]any)
		}
		if !has && properties != nil {
			return fmt.Sprintf("%s has %s", at, name)
		}
		if !has {
			continue // of an object without a shape
		}
		if wrong := d.differs(property, of, at+"."+name); wrong != "" {
			return wrong
		}
	}
	return ""
}

// ofType reports whether a value is of a type, or of one of a list of types.
func ofType(kind, value any) bool {
	switch kind := kind.(type) {
	case []any:
		return slices.ContainsFunc(kind, func(one any) bool { return ofType(one, value) })
	case string:
		switch value := value.(type) {
		case nil:
			return kind == "null"
		case bool:
			return kind == "boolean"
		case string:
			return kind == "string"
		case json.Number:
			n, err := value.Float64()
			return kind == "integer" && err == nil && n == math.Trunc(n)
		case map[string]any:
			return kind == "object"
		case []any:
			return kind == "array"
		}
	}
	return kind == nil
}
