package v1_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/openapitest"
)

// linter collects what is wrong with a description.
type linter struct {
	*openapitest.Description
	ids, tags, used map[string]bool
	found           []string
}

func (l *linter) add(format string, args ...any) {
	l.found = append(l.found, fmt.Sprintf(format, args...))
}

// members returns an object of the description in the order of its names.
func members(value any) (names []string, object map[string]any) {
	object, _ = value.(map[string]any)
	return slices.Sorted(maps.Keys(object)), object
}

// lint returns what is wrong with a description: operations without a unique name, a tag, a summary, refusals or
// examples; schemas and references that can't be used; components without a use; examples that are not valid.
func lint(d *openapitest.Description) []string {
	l := &linter{d, map[string]bool{}, map[string]bool{}, map[string]bool{}, nil}
	tags, _ := d.Document["tags"].([]any)
	for _, tag := range tags {
		l.tags[tag.(map[string]any)["name"].(string)] = true
	}
	paths, items := members(d.Document["paths"])
	for _, path := range paths {
		methods, operations := members(items[path])
		for _, method := range methods {
			l.operation(path, operations[method].(map[string]any), method+" "+path)
		}
	}
	l.walk(d.Document, "#")
	for _, kind := range []string{"schemas", "responses"} {
		names, _ := members(d.Document["components"].(map[string]any)[kind])
		for _, name := range names {
			if ref := "#/components/" + kind + "/" + name; !l.used[ref] {
				l.add("%s is not used", ref)
			}
		}
	}
	return l.found
}

func (l *linter) operation(path string, object map[string]any, name string) {
	for _, text := range []string{"operationId", "summary"} {
		if value, _ := object[text].(string); value == "" {
			l.add("%s has no %s", name, text)
		}
	}
	if id := fmt.Sprint(object["operationId"]); l.ids[id] {
		l.add("%s: the operationId is taken", name)
	} else {
		l.ids[id] = true
	}
	tags, _ := object["tags"].([]any)
	if len(tags) != 1 || !l.tags[fmt.Sprint(tags[0])] {
		l.add("%s has the tags %v", name, tags)
	}
	inPath := 0
	parameters, _ := object["parameters"].([]any)
	for _, listed := range parameters {
		if p := listed.(map[string]any); p["in"] == "path" {
			inPath++
			if p["required"] != true || !strings.Contains(path, fmt.Sprintf("{%s}", p["name"])) {
				l.add("%s: the parameter %v", name, p["name"])
			}
		}
	}
	if inPath != strings.Count(path, "{") {
		l.add("%s has %d parameters of the path", name, inPath)
	}
	l.replies(object, name)
}

// replies looks for the refusals that every route has, and for examples of JSON.
func (l *linter) replies(operation map[string]any, name string) {
	statuses, replies := members(operation["responses"])
	successes, shown := 0, 0
	for _, status := range statuses {
		reply, _ := l.Resolve(replies[status].(map[string]any), "")
		if body, has := jsonOf(reply); has && status < "300" {
			successes++
			if body["example"] != nil {
				shown++
			}
		}
		_, content := members(reply["content"])
		if _, refuses := content["application/problem+json"]; status >= "400" && !refuses {
			l.add("%s: %s is no problem", name, status)
		}
	}
	if successes > 0 && shown == 0 && operation["operationId"] != "get-openapi-json" {
		l.add("%s: no reply has an example", name)
	}
	for _, status := range []string{"400", "421", "429", "500"} {
		if replies[status] == nil {
			l.add("%s has no %s", name, status)
		}
	}
	if request, has := operation["requestBody"].(map[string]any); has {
		if body, ok := jsonOf(request); ok && body["example"] == nil && request["required"] == true {
			l.add("%s: the request has no example", name)
		}
	}
}

func jsonOf(object map[string]any) (map[string]any, bool) {
	content, _ := object["content"].(map[string]any)
	body, ok := content["application/json"].(map[string]any)
	return body, ok
}

// walk compares every example with its schema, and follows every reference.
func (l *linter) walk(at any, pointer string) {
	if list, ok := at.([]any); ok {
		for i, element := range list {
			l.walk(element, fmt.Sprintf("%s/%d", pointer, i))
		}
	}
	names, object := members(at)
	if ref, ok := object["$ref"].(string); ok {
		l.used[ref] = true
	}
	if object["schema"] != nil {
		if err := l.Compile(pointer + "/schema"); err != nil {
			l.add("%s: %v", pointer, err)
		} else if object["example"] != nil {
			l.compare(object["example"], pointer+"/schema")
		}
	}
	examples, _ := object["examples"].([]any)
	for _, example := range examples {
		l.compare(example, pointer)
	}
	for _, name := range names {
		if name != "example" && name != "examples" {
			l.walk(object[name], pointer+"/"+strings.ReplaceAll(name, "/", "~1"))
		}
	}
}

func (l *linter) compare(example any, pointer string) {
	if err := l.Differs(example, pointer); err != nil {
		l.add("%s: an example: %v", pointer, err)
	}
}

// TestOpenAPILint checks the description, then breaks it in several ways and checks that each rule fails.
func TestOpenAPILint(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ remove, put, want string }{
		{"", "", ""},
		{`"operationId": "put-semaphores-name"`, `"operationId": "patch-semaphores-name"`, "the operationId is taken"},
		{`"operationId": "put-semaphores-name",`, ``, "has no operationId"},
		{`"summary": "Create or change a semaphore",`, ``, "has no summary"},
		{`"tags": \[\s*"semaphores"\s*\]`, `"tags": []`, "has the tags"},
		{`"tags": \[\s*"semaphores"\s*\]`, `"tags": ["other"]`, "has the tags"},
		{`"in": "path",\s*"name": "name"`, `"in": "path", "name": "other"`, "the parameter other"},
		{`"in": "path",\s*"name": "name",\s*"required": true`, `"in": "query", "name": "other"`, "parameters of the path"},
		{`"500": \{\s*"\$ref": "[^"]*"\s*\},`, ``, "has no 500"},
		{`"application/problem\+json"`, `"application/json"`, "is no problem"},
		{`"example": \{\s*"operations"`, `"other": { "operations"`, "the request has no example"},
		{`"example": \{\s*"index"`, `"other": { "index"`, "no reply has an example"},
		{`"example": \{\s*"permits": 10`, `"example": {"permits": "3"`, "got string, want null or integer"},
		{`"1m30s"`, `"1m30"`, "an example: "},
		{`"schemas": \{`, `"schemas": { "Unused": {"type": "object"},`, "Unused is not used"},
		{`"#/components/schemas/Value"`, `"#/components/schemas/Worth"`, "Worth"},
		{`"pattern": "`, `"pattern": "(`, "pattern"},
	} {
		pattern := regexp.MustCompile(c.remove)
		at := pattern.FindIndex(text)
		if at == nil {
			t.Errorf("nothing to break: %s", c.remove)
			continue
		}
		d, err := openapitest.Parse(slices.Concat(text[:at[0]], []byte(c.put), text[at[1]:]))
		if err != nil {
			t.Fatal(err)
		}
		found := strings.Join(lint(d), "\n")
		if (found == "") != (c.want == "") || !strings.Contains(found, c.want) {
			t.Errorf("with %s: %.2000s\nwant %q", c.put, found, c.want)
		}
	}
}
