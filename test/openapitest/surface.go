package openapitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Surface returns what clients rely on in a description of the API, a line each: routes; what a
// request takes, by name and type; what it needs; what a reply gives, by status, name and type.
func Surface(description []byte) ([]string, error) {
	s := surface{lines: map[string]bool{}, walked: map[string]bool{}}
	if err := json.Unmarshal(description, &s.root); err != nil {
		return nil, err
	}
	for path, methods := range object(s.root["paths"]) {
		for method, operation := range object(methods) {
			s.add(strings.ToUpper(method)+" "+path, object(operation))
		}
	}
	return slices.Sorted(maps.Keys(s.lines)), nil
}

// Breaks returns the differences of two surfaces that can break a client of the first.
func Breaks(released, now []string) (breaks []string) {
	before, after := set(released), set(now)
	routes, members := map[string]bool{}, map[string]bool{}
	for _, line := range released {
		kind, rest, _ := strings.Cut(line, " ")
		member, _, _ := strings.Cut(rest, ": ")
		switch kind {
		case "route":
			routes[rest] = true
		case "gives":
			members[member] = true
		}
		if kind != "needs" && !after[line] {
			breaks = append(breaks, "gone: "+line)
		}
	}
	for _, line := range now {
		kind, rest, _ := strings.Cut(line, " ")
		member, _, _ := strings.Cut(rest, ": ")
		route := strings.Join(strings.SplitN(rest, " ", 3)[:2], " ")
		if !before[line] && (kind == "needs" && routes[route] || kind == "gives" && members[member]) {
			breaks = append(breaks, "new: "+line)
		}
	}
	return breaks
}

func set(lines []string) map[string]bool {
	all := map[string]bool{}
	for _, line := range lines {
		all[line] = true
	}
	return all
}

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

type surface struct {
	root   map[string]any
	lines  map[string]bool
	walked map[string]bool // schemas of components
}

// add adds a route.
func (s *surface) add(route string, operation map[string]any) {
	s.lines["route "+route] = true
	parameters, _ := operation["parameters"].([]any)
	for _, p := range parameters {
		parameter := object(p)
		name := fmt.Sprint(route, " ", parameter["in"], " ", parameter["name"])
		if parameter["required"] == true {
			s.lines["needs "+name] = true
		}
		s.schema("takes", name, parameter["schema"], 0)
	}
	for _, content := range object(object(operation["requestBody"])["content"]) {
		s.schema("takes", route+" body", object(content)["schema"], 0)
	}
	for status, reply := range object(operation["responses"]) {
		if status >= "3" { // refusals have one shape, and may have codes that a client does not know
			continue
		}
		s.lines["gives "+route+" "+status] = true
		for _, content := range object(object(reply)["content"]) {
			s.schema("gives", route+" "+status, object(content)["schema"], 0)
		}
	}
}

// deepest bounds how deep a schema is followed.
const deepest = 12

// schema adds the members of a schema, and their types. Many replies share the schemas of
// components, whose lines occur once.
func (s *surface) schema(kind, name string, schema any, depth int) {
	o := s.resolved(schema)
	if text, ok := object(schema)["$ref"].(string); ok && kind == "gives" {
		shared := text[strings.LastIndex(text, "/")+1:]
		s.lines[kind+" "+name+": "+shared] = true
		if name, depth = shared, 0; s.walked[shared] {
			return
		}
		s.walked[shared] = true
	}
	if depth > deepest {
		return
	}
	for _, either := range []string{"oneOf", "anyOf", "allOf"} {
		branches, _ := o[either].([]any)
		for _, branch := range branches {
			s.schema(kind, name+s.operation(branch), branch, depth+1)
		}
	}
	types, several := o["type"].([]any)
	if !several && o["type"] != nil {
		types = []any{o["type"]}
	}
	values, _ := o["enum"].([]any)
	for _, value := range append(types, values...) {
		s.lines[fmt.Sprintf("%s %s: %v", kind, name, value)] = true
	}
	required, _ := o["required"].([]any)
	for member, schema := range object(o["properties"]) {
		if kind == "takes" && slices.Contains(required, any(member)) {
			s.lines["needs "+name+" "+member] = true
		}
		s.schema(kind, name+" "+member, schema, depth+1)
	}
	if o["items"] != nil {
		s.schema(kind, name+" []", o["items"], depth+1)
	}
}

// resolved follows a reference.
func (s *surface) resolved(schema any) map[string]any {
	o := object(schema)
	text, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	var at any = s.root
	for _, part := range strings.Split(strings.TrimPrefix(text, "#/"), "/") {
		at = object(at)[part]
	}
	return s.resolved(at)
}

// operation names the branch of a schema that is one operation of a batch.
func (s *surface) operation(branch any) string {
	if op := object(object(s.resolved(branch)["properties"])["op"])["const"]; op != nil {
		return fmt.Sprintf(" (%v)", op)
	}
	return ""
}
