package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// instructions tell a model how to use the tools together.
const instructions = "Signalbox keeps semaphores: a number of permits that many programs share. Acquire permits before you use what they " +
	"stand for, and release them at once after it. If acquire replies that the request waits, do other work or call acquire again with the " +
	"same arguments: the request keeps its place in the line. All permits are given back when this server ends."

const (
	// longestWait bounds how long an acquire waits, since clients cancel calls after a minute.
	longestWait = 50 * time.Second
	// shortestWait gives the cluster time to grant permits that are free.
	shortestWait = time.Second
	// maxCount is the largest number of permits, which a float64 represents exactly.
	maxCount = float64(1 << 53)
)

// arguments are the arguments of all tools. Each tool uses some of them.
type arguments struct {
	Prefix    string  `json:"prefix"`
	Semaphore string  `json:"semaphore"`
	Group     string  `json:"group"`
	Count     float64 `json:"count"`
	Wait      float64 `json:"wait_seconds"`
	Used      float64 `json:"used"`
}

func (a *arguments) wait() time.Duration {
	return max(shortestWait, time.Duration(a.Wait*float64(time.Second)))
}

type tool struct {
	name, text string
	required   []string // properties
	optional   []string
	changes    bool
	call       func(ctx context.Context, p *permits, a *arguments) (any, error)
}

func tools() []tool {
	return []tool{
		{"list", "List the semaphores whose names begin with prefix, at most 100, and the permits that this server holds or waits for.",
			nil, []string{"prefix"}, false,
			func(ctx context.Context, p *permits, a *arguments) (any, error) { return p.list(ctx, a.Prefix) }},
		{"why", "Show a semaphore with its first ten holders and waiting requests, and why each of these waits.",
			[]string{"semaphore"}, nil, false,
			func(ctx context.Context, p *permits, a *arguments) (any, error) { return p.why(ctx, a.Semaphore) }},
		{"acquire", "Acquire permits of a semaphore. Waits in line for at most wait_seconds; a reply with state \"waiting\" means: ask again " +
			"with the same arguments, the request keeps its place for two minutes. Release the permits as soon as they are not needed any more.",
			[]string{"semaphore"}, []string{"group", "count", "wait_seconds"}, true,
			func(ctx context.Context, p *permits, a *arguments) (any, error) {
				return p.acquire(ctx, target{a.Semaphore, a.Group}, int64(a.Count), a.wait())
			}},
		{"release", "Give back the permits of a semaphore, or withdraw the request for them.", []string{"semaphore"}, []string{"group"}, true,
			func(ctx context.Context, p *permits, a *arguments) (any, error) {
				return p.release(ctx, target{a.Semaphore, a.Group})
			}},
		{"settle", "Say how many permits of a semaphore with a window were really used, such as tokens of a model, after an acquire of an estimate. " +
			"Settle each acquire once; the next acquire spends permits again.",
			[]string{"semaphore", "used"}, []string{"group"}, true,
			func(ctx context.Context, p *permits, a *arguments) (any, error) {
				return p.settle(ctx, target{a.Semaphore, a.Group}, int64(a.Used))
			}},
	}
}

// schemas returns the JSON schemas of the tools' properties.
func schemas() map[string]object {
	return map[string]object{
		"prefix":       {"type": "string", "description": "The beginning of the names; empty: all."},
		"semaphore":    {"type": "string", "description": "The name of the semaphore."},
		"group":        {"type": "string", "description": "The group, of a semaphore with groups, such as a tenant."},
		"count":        {"type": "integer", "minimum": 1.0, "maximum": maxCount, "description": "How many permits; 1 by default."},
		"wait_seconds": {"type": "number", "minimum": 0.0, "maximum": longestWait.Seconds(), "description": "How long this call waits if the permits are not free, at least 1; 50 by default."},
		"used":         {"type": "integer", "minimum": 0.0, "maximum": maxCount, "description": "How many permits were used."},
	}
}

// descriptions returns the tools in the form of tools/list.
func descriptions() (all []object) {
	known := schemas()
	for _, t := range tools() {
		properties := object{}
		for _, name := range slices.Concat(t.required, t.optional) {
			properties[name] = known[name]
		}
		all = append(all, object{"name": t.name, "description": t.text, "annotations": object{"readOnlyHint": !t.changes, "destructiveHint": false},
			"inputSchema": object{"type": "object", "properties": properties, "required": append([]string{}, t.required...), "additionalProperties": false}})
	}
	return all
}

// parseCall reads the parameters of tools/call.
func parseCall(params json.RawMessage) (*tool, *arguments, error) {
	var call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(params, &call); err != nil {
		return nil, nil, err
	}
	all := tools()
	i := slices.IndexFunc(all, func(t tool) bool { return t.name == call.Name })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no tool %q", call.Name)
	}
	a, err := all[i].readArguments(call.Arguments)
	return &all[i], a, err
}

// readArguments reads the arguments of a call, and refuses arguments that are missing, unknown or outside their schemas.
func (t *tool) readArguments(text json.RawMessage) (*arguments, error) {
	a, present := arguments{Count: 1, Wait: longestWait.Seconds()}, map[string]json.RawMessage{}
	if len(text) > 0 {
		if json.Unmarshal(text, &present) != nil {
			return nil, fmt.Errorf("the arguments of %s are not an object", t.name)
		}
	}
	maps.DeleteFunc(present, func(_ string, value json.RawMessage) bool { return string(value) == "null" }) // null: not set
	for _, name := range t.required {
		if present[name] == nil {
			return nil, fmt.Errorf("the arguments of %s lack %s", t.name, name)
		}
	}
	known := schemas()
	for _, name := range slices.Sorted(maps.Keys(present)) {
		if !slices.Contains(t.required, name) && !slices.Contains(t.optional, name) {
			return nil, fmt.Errorf("%s has no argument %q", t.name, name)
		}
		if err := checkValue(known[name], present[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(present) == 0 {
		return &a, nil
	}
	return &a, json.Unmarshal(text, &a)
}

// checkValue checks a value by its schema. A whole number may be written as 1.0.
func checkValue(schema object, value json.RawMessage) error {
	if schema["type"] == "string" {
		if value[0] != '"' {
			return errors.New("this is not a string")
		}
		return nil
	}
	var n float64
	switch least, greatest := schema["minimum"].(float64), schema["maximum"].(float64); {
	case json.Unmarshal(value, &n) != nil:
		return errors.New("this is not a number")
	case schema["type"] == "integer" && n != math.Trunc(n):
		return errors.New("this is not a whole number")
	case n < least:
		return fmt.Errorf("this is less than %.0f", least)
	case n > greatest:
		return fmt.Errorf("this is more than %.0f", greatest)
	}
	return nil
}
