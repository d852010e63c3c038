package v1

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"math"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/v1/reads"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// object is a JSON object; encoding/json sorts its members.
type object = map[string]any

// described is what the description has about a route in addition to its operation.
type described struct {
	summary string
	op      *operation
	query   string      // names of queryTypes; an operation's are added
	body    string      // names of members; "name!" is needed; "*": bytes
	replies map[int]any // by status; a value of the body's type, an object for a schema, nil: no body
	codes   string      // of problems, beyond its kind's
}

const (
	ofSemaphore = " unknown-semaphore precondition-failed"
	ofLeader    = " no-leader outcome-unknown"
	ofSession   = " unknown-session expired-session revoked"
	ofQueue     = " line-full superseded"
	ofLine      = " unavailable never hierarchy lease-exists deleted over" + ofQueue
)

// describedRoutes has a row for each route.
var describedRoutes = map[string]described{
	"PUT /v1/semaphores/:name":                     {"Create or change a semaphore", &opPut, "", "", map[int]any{200: reads.SemaphoreBody{}, 201: reads.SemaphoreBody{}}, ofSemaphore + " overflow requests-waiting"},
	"PATCH /v1/semaphores/:name":                   {"Change a semaphore that exists", &opPatch, "", "", map[int]any{200: reads.SemaphoreBody{}}, ofSemaphore + " overflow requests-waiting"},
	"POST /v1/semaphores":                          {"Create a semaphore, or open the existing one", &opCreate, "", "", map[int]any{200: openedSemaphoreBody{}, 201: openedSemaphoreBody{}}, ""},
	"GET /v1/semaphores":                           {"List semaphores by name", nil, "prefix limit cursor", "", map[int]any{200: reads.SemaphoresBody{}}, ""},
	"GET /v1/semaphores/:name":                     {"Read a semaphore, or wait for a change of it", nil, "epoch holders waiters index wait", "", map[int]any{200: reads.WholeSemaphoreBody{}}, ofSemaphore},
	"GET /v1/semaphores/:name/holders":             {"List the holders of a semaphore, oldest first", nil, "epoch group limit cursor", "", map[int]any{200: reads.HoldersBody{}}, ofSemaphore},
	"GET /v1/semaphores/:name/waiters":             {"List the waiting requests of a semaphore in their order", nil, "epoch group limit cursor", "", map[int]any{200: reads.WaitersBody{}}, ofSemaphore},
	"GET /v1/semaphores/:name/groups":              {"List the groups of a semaphore by name", nil, "epoch waiting limit cursor", "", map[int]any{200: reads.GroupsBody{}}, ofSemaphore},
	"GET /v1/semaphores/:name/groups/:group":       {"Read a group of a semaphore", nil, "epoch", "", map[int]any{200: reads.GroupBody{}}, ofSemaphore + " unknown-group"},
	"GET /v1/semaphores/:name/lost":                {"List what lost leases of a semaphore held", nil, "epoch limit cursor", "", map[int]any{200: reads.LostHoldsBody{}}, ofSemaphore},
	"DELETE /v1/semaphores/:name/lost/:token":      {"Free what a lost lease held", &opFreeLost, "", "", map[int]any{204: nil}, ofSemaphore + " not-lost"},
	"PUT /v1/semaphores/:name/groups/:group":       {"Give a group a limit of its own", &opGroupPut, "", "", map[int]any{200: ownLimitBody{}}, ofSemaphore},
	"DELETE /v1/semaphores/:name":                  {"Delete a semaphore", &opDelete, "", "", map[int]any{204: nil}, ofSemaphore},
	"PUT /v1/semaphores/:name/value":               {"Set the available permits", &opSet, "", "", map[int]any{200: valueBody{}}, ofSemaphore + " overflow no-total"},
	"POST /v1/semaphores/:name/up":                 {"Add permits without an owner", &opUp, "", "", map[int]any{200: valueBody{}}, ofSemaphore + " overflow no-total"},
	"POST /v1/semaphores/:name/down":               {"Take permits without an owner", &opDown, "", "", map[int]any{200: downBody{}, 202: reads.WaitingBody{}}, ofSemaphore + " unavailable deleted revoked no-total" + ofQueue},
	"POST /v1/semaphores/:name/leases":             {"Acquire in a session of its own", &opAcquireOnce, "", "", map[int]any{201: reads.LeaseBody{}, 202: reads.WaitingBody{}}, ofSemaphore + " unavailable never deleted revoked over" + ofQueue},
	"DELETE /v1/semaphores/:name/holders/:session": {"Revoke a lease", &opRevoke, "", "", map[int]any{204: nil}, ofSemaphore + ofSession + " not-held"},

	"POST /v1/sessions":                      {"Open a session", &opOpen, "", "", map[int]any{201: reads.SessionBody{}}, " over"},
	"GET /v1/sessions":                       {"List sessions by id", nil, "limit cursor", "", map[int]any{200: reads.SessionsBody{}}, ""},
	"GET /v1/sessions/:id":                   {"Read a session", nil, "", "", map[int]any{200: reads.SessionBody{}}, ofSession},
	"PUT /v1/sessions/:id":                   {"Renew a session", &opRenew, "", "", map[int]any{200: renewedBody{}}, ofSession},
	"DELETE /v1/sessions/:id":                {"End a session", &opEnd, "", "", map[int]any{204: nil}, ""},
	"POST /v1/sessions/:id/revoke":           {"End a session as an operator", &opRevokeSession, "", "", map[int]any{204: nil}, ""},
	"GET /v1/sessions/:id/leases":            {"List the leases of a session, oldest first", nil, "limit cursor", "", map[int]any{200: reads.HeldLeasesBody{}}, ofSession},
	"PUT /v1/sessions/:id/leases/:name":      {"Acquire in a session", &opAcquire, "", "", map[int]any{200: reads.LeaseBody{}, 202: reads.WaitingBody{}}, ofSemaphore + ofSession + ofLine},
	"GET /v1/sessions/:id/leases/:name":      {"Read a lease or a waiting request", nil, "epoch group", "", map[int]any{200: reads.LeaseBody{}, 202: reads.WaitingBody{}}, ofSemaphore + ofSession + " not-held"},
	"PATCH /v1/sessions/:id/leases/:name":    {"Return part of a lease, or settle a receipt", &opResize, "", "", map[int]any{200: reads.LeaseBody{}}, ofSemaphore + ofSession + " not-held lease-exists over overflow"},
	"DELETE /v1/sessions/:id/leases/:name":   {"Release a lease or withdraw a request", &opRelease, "", "", map[int]any{204: nil}, ofSemaphore + ofSession},
	"POST /v1/sessions/:id/acquire":          {"Acquire all or any of several semaphores", &opAcquireMany, "", "", map[int]any{200: leasesBody{}, 202: reads.WaitingBody{}}, " unknown-semaphore" + ofSession + ofLine},
	"POST /v1/sessions/:id/restore":          {"Restore a session that a client remembers", &opRestore, "", "", map[int]any{200: restoredBody{}}, " unknown-semaphore revoked session-exists over overflow slots-needed slot-taken"},
	"PUT /v1/sessions/:id/waitlist/:name":    {"Add to a wait list", &opListAdd, "", "", map[int]any{200: listedBody{}}, ofSemaphore + ofSession + " overflow no-total line-full"},
	"DELETE /v1/sessions/:id/waitlist/:name": {"Remove from a wait list", &opListRemove, "", "", map[int]any{204: nil}, ofSession},
	"POST /v1/sessions/:id/waitlist/wait":    {"Deliver the ready entries of a wait list", &opListDeliver, "", "", map[int]any{200: deliveryBody{}}, ofSession},

	"PUT /v1/items/:name":    {"Put, acquire or release an item", &opItem, "", "", map[int]any{200: changedItemBody{}, 201: changedItemBody{}}, ofSession + " item-differs over"},
	"DELETE /v1/items/:name": {"Delete an item", &opItemDelete, "", "", map[int]any{204: nil}, " item-differs"},
	"GET /v1/items":          {"List items by name, or wait for a change of one", nil, "prefix limit cursor index wait", "", map[int]any{200: reads.ItemsBody{}}, " forbidden"},
	"GET /v1/items/:name":    {"Read an item, or wait for a change of it", nil, "index wait", "", map[int]any{200: reads.FoundItemBody{}}, " unknown-item"},

	"POST /v1/batch":       {"Carry out many operations", nil, "", "operations!", map[int]any{200: batchBody{}}, ""},
	"GET /v1/openapi.json": {"This description", nil, "", "", map[int]any{200: object{"type": "object"}}, ""},
	"GET /v1/events":       {"Follow the changes as server-sent events", nil, "since last name* prefix group session renewals", "", map[int]any{200: "text/event-stream"}, " history-gone unknown-session"},

	"GET /v1/cluster":                    {"Read the members of the cluster", nil, "", "", map[int]any{200: clusterSchema}, ""},
	"PUT /v1/cluster/members/:member":    {"Add a member", nil, "", "peer!", map[int]any{200: clusterSchema, 202: clusterSchema}, ofLeader + " member-refused no-successor"},
	"DELETE /v1/cluster/members/:member": {"Remove a member", nil, "", "", map[int]any{200: clusterSchema}, ofLeader + " member-refused unknown-member no-successor"},
	"POST /v1/cluster/leader":            {"Hand the leadership over", nil, "", "id", map[int]any{200: clusterSchema}, ofLeader + " no-successor unknown-member"},
	"PUT /v1/cluster/level":              {"Raise the feature level", nil, "", "feature_level!", map[int]any{200: clusterSchema}, ofLeader + " level-unknown"},
	"PUT /v1/cluster/tokens":             {"Raise the tokens above another cluster's", &opRaiseTokens, "", "", map[int]any{200: tokensBody{}}, ""},
	"GET /v1/snapshot":                   {"Fetch a backup", nil, "", "", map[int]any{200: "application/octet-stream"}, ""},
	"PUT /v1/snapshot":                   {"Restore a backup", nil, "cluster! from sessions", "*", map[int]any{200: restoreSchema}, " precondition-failed no-leader not-leader backup-refused level-unknown storage-full states-differ not-applied outcome-unknown"},
}

// The shapes of packages below v1. The tests of every reply check them.
var (
	integer         = object{"type": "integer", "format": "int64"}
	text            = object{"type": "string"}
	nullableText    = object{"type": []string{"string", "null"}}
	truth           = object{"type": "boolean"}
	nullableInteger = object{"type": []string{"integer", "null"}, "format": "int64"}
	clusterSchema   = shape("node", text, "cluster", nullableText, "leader", nullableText, "term", integer, "commit_index", integer, "applied_index", integer,
		"cluster_time_ms", integer, "state_hash", text, "level", integer, "majority", truth, "members", list(shape("id", text, "peer", text, "voter", truth, "leader", truth,
			"state", object{"type": "string", "enum": []string{"up", "down", "unknown"}},
			"last_contact_ms", nullableInteger, "lag", nullableInteger, "knows", integer,
			"storage", object{"type": []string{"string", "null"}, "enum": []any{"room", "low", "full", nil}})))
	restoreSchema = shape("index", integer, "sessions", text, "backup", shape("index", integer, "term", integer, "cluster", text, "cluster_time_ms", integer,
		"level", integer, "wall_time", text))
	sessionID = pattern(`^[1-9][0-9]{0,19}$`)
	name      = object{"type": "string", "minLength": 1, "maxLength": 512, "pattern": printable, "description": "UTF-8 of up to 512 bytes, without control characters."}
	prefix    = object{"type": "string", "maxLength": 512, "pattern": printable}
	reason    = object{"type": "string", "maxLength": 1024, "pattern": printable, "description": "UTF-8 of up to 1,024 bytes, without control characters."}
	key       = object{"type": "string", "minLength": 16, "maxLength": 128, "pattern": `^[!-~]*$`}
	memberID  = pattern(`^[A-Za-z0-9._-]{1,64}$`)
	group     = object{"type": "string", "maxLength": 128, "pattern": printable, "description": "UTF-8 of up to 128 bytes, without control characters."}
	clusterID = pattern(`^[0-9a-f]{32}$`)
	event     = object{"type": "string", "pattern": `^(0|[1-9][0-9]*)(\.[1-9][0-9]*)?$`, "description": "index.ordinal, or an index: after all of that entry."}
	positive  = object{"type": "integer", "format": "int64", "minimum": 1}
	flags     = object{"type": "integer", "minimum": 0, "description": "Up to 64 bits."}
	natural   = object{"type": "integer", "format": "int64", "minimum": 0}
)

const (
	printable  = `^[^\x00-\x1f\x7f-\x9f]*$` // a text without control characters
	settings   = `[1-9][0-9]*\.[1-9][0-9]*`
	asDuration = `(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)`
)

func pattern(expression string) object { return object{"type": "string", "pattern": expression} }

// durationFrom is the schema of a duration in a body of at least this many milliseconds.
func durationFrom(least int) object {
	text := object{"type": "string", "maxLength": 64, "pattern": "^" + asDuration + "$", "examples": []string{"1m30s"}}
	if least > 0 {
		text["allOf"] = []any{object{"pattern": "[1-9]"}}
	}
	return object{"oneOf": []any{text, object{"type": "integer", "format": "int64", "minimum": least}},
		"description": "A duration such as 30s, 1m30s or 250ms, or milliseconds."}
}

// tags are the groups of routes, by the first part of their paths.
var tags = []struct{ part, name, description string }{
	{"semaphores", "semaphores", "Semaphores, their permits, and leases in a session of their own"},
	{"items", "items", "Small named values that sessions may hold"},
	{"sessions", "sessions", "Sessions, with their leases, requests and wait lists"},
	{"batch", "batch", "Many operations in one request"},
	{"events", "events", "Changes, as they happen"},
	{"cluster", "cluster", "Members, leader and feature level"},
	{"snapshot", "backups", "The state as a file"},
	{"openapi.json", "description", "This description"},
}

// example has the requests and replies of the curl lines of docs/api*.md, by the route's operationId.
type example struct {
	Request json.RawMessage            `json:"request,omitempty"`
	Replies map[string]json.RawMessage `json:"replies,omitempty"` // by status
}

// readExamples reads what TestDocsExamples has recorded.
func readExamples(t *testing.T) (examples map[string]example) {
	t.Helper()
	text, err := os.ReadFile("testdata/examples.json")
	if err == nil {
		err = json.Unmarshal(text, &examples)
	}
	if err != nil {
		t.Fatal(err)
	}
	return examples
}

// memberTypes has the schema of every member of a body.
var memberTypes = object{
	"op": text, "semaphore": name, "name": name, "session": sessionID, "permits": orNull(natural), "value": natural, "count": positive, "ttl": durationFrom(0), "wait": durationFrom(0),
	"level":  object{"type": []string{"integer", "null"}, "format": "int32"},
	"groups": oneOrNull("request", "owner"), "per_group": orNull(positive), "max_waiting": orNull(atMost(positive, fsm.MaxWaitingLimit)), "when_full": oneOrNull("refuse", "drop-oldest"),
	"paused": object{"type": []string{"string", "null"}, "minLength": 1, "maxLength": 1024, "pattern": printable}, "limit": orNull(natural), "above": object{"type": "integer", "format": "int64", "minimum": 0, "maximum": fsm.MaxRaise},
	"group": group, "head_start": durationFrom(0), "window": spanOrNull(fsm.MinWindowMS), "cooldown": spanOrNull(0), "max_hold": spanOrNull(fsm.MinHoldMS), "slots": object{"type": []string{"boolean", "null"}},
	"on_lost":  object{"oneOf": []any{oneOrNull("release", "quarantine"), durationFrom(1)}},
	"metadata": object{"type": []string{"object", "null"}, "additionalProperties": text, "maxProperties": 16},
	"item":     name, "value_base64": object{"type": "string", "contentEncoding": "base64", "pattern": `^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)?$`},
	"flags": flags, "if_version": natural, "release": truth,
	"about": object{"type": "string", "maxLength": fsm.MaxAboutBytes}, "on_end_items": object{"type": "string", "enum": []string{"release", "delete"}}, "item_delay": durationFrom(0),
	"partial": truth, "try": truth, "only_new": truth, "epoch": positive, "token": positive, "if_match": pattern("^" + settings + "$"),
	"reason": reason, "mode": object{"type": "string", "enum": []string{"all", "any"}},
	"on_end": object{"type": "string", "enum": []string{"return", "keep"}}, "key": key,
	"semaphores": object{"type": "array", "items": want, "minItems": 1, "maxItems": 64}, "leases": object{"type": "array", "items": slotted(want), "maxItems": maxLeases},
	"operations": list(object{"$ref": "#/components/schemas/Operation"}), "peer": object{"type": "string", "maxLength": 255, "pattern": `^([!-9;-Z\\^-~]+|\[[!-Z^-~]+\]):0*[1-9][0-9]{0,4}$`}, "id": memberID, "feature_level": object{"type": "integer", "format": "int64", "minimum": 1, "maximum": math.MaxUint32},
}

// orNull makes a schema of numbers allow null too.
func orNull(schema object) object {
	nullable := maps.Clone(schema)
	nullable["type"] = []string{"integer", "null"}
	return nullable
}

func atMost(schema object, highest int64) object {
	bounded := maps.Clone(schema)
	bounded["maximum"] = highest
	return bounded
}

// spanOrNull is the schema of a duration of at least this many milliseconds, or null.
func spanOrNull(least int) object {
	span := durationFrom(least)
	span["oneOf"] = append(span["oneOf"].([]any), object{"type": "null"})
	return span
}

// slotted is the schema of a lease in a restore, with its slots.
func slotted(lease object) object {
	with := maps.Clone(lease["properties"].(object))
	with["slots"] = object{"type": "array", "items": object{"type": "integer", "minimum": 0, "maximum": 1<<20 - 1}, "maxItems": 1024}
	slotted := maps.Clone(lease)
	slotted["properties"] = with
	return slotted
}

// oneOrNull is the schema of one of several texts, or null.
func oneOrNull(texts ...any) object { return object{"enum": append(texts, nil)} }

var want = object{"type": "object", "properties": object{"name": name, "count": positive, "group": group}, "required": []string{"name"}, "additionalProperties": false}

// queryTypes has the schema of every query parameter.
var queryTypes = object{
	"epoch": positive, "token": positive, "try": truth, "leases": truth, "wait": pattern("^([1-9][0-9]*|" + asDuration + ")$"), "reason": reason, "if_version": natural,
	"prefix": prefix, "group": group, "waiting": truth, "cursor": pattern("^[A-Za-z0-9_-]+$"), "since": event, "name": name,
	"last": object{"type": "integer", "minimum": 1, "maximum": 1000}, "renewals": truth,
	"limit":   object{"type": "integer", "minimum": 1, "maximum": reads.MaxPage, "default": reads.DefaultPage},
	"holders": object{"type": "integer", "minimum": 0, "maximum": reads.MaxPage, "default": reads.DefaultPage},
	"waiters": object{"type": "integer", "minimum": 0, "maximum": reads.MaxPage, "default": reads.DefaultPage},
	"index":   natural, "min_index": natural, "session": sessionID, "cluster": clusterID, "from": clusterID,
	"sessions":    object{"type": "string", "enum": []string{"keep", "end"}, "default": "keep"},
	"consistency": object{"type": "string", "enum": []string{"linearizable", "stale"}, "default": "linearizable"},
}

// headerTypes has the schema of every header that has an effect.
var headerTypes = object{"Idempotency-Key": key, "If-Match": pattern(`^"` + settings + `"$`), "If-None-Match": object{"const": "*"}, "Last-Event-ID": event}

func list(items any) object { return object{"type": "array", "items": items} }

// shape is the schema of an object whose members are always present. members has the name and the schema of each in
// turn.
func shape(members ...any) object {
	properties, required := object{}, []string{}
	for i := 0; i < len(members); i += 2 {
		properties[members[i].(string)] = members[i+1]
		required = append(required, members[i].(string))
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// schemas makes schemas of Go types, with the named ones among the components.
type schemas object

func (s schemas) of(t reflect.Type) any {
	switch t {
	case reflect.TypeFor[reads.Flags]():
		return flags
	case reflect.TypeFor[exchange.Slots]():
		return list(integer)
	case reflect.TypeFor[exchange.Pairs]():
		return object{"type": "object", "additionalProperties": text}
	case reflect.TypeFor[reads.WantCounts]():
		return object{"type": "object", "additionalProperties": integer}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Slice:
		return list(s.of(t.Elem()))
	case reflect.String:
		return text
	case reflect.Bool:
		return truth
	case reflect.Interface: // the body of a result in a batch
		return object{"anyOf": s.results()}
	case reflect.Struct:
		called := strings.TrimSuffix(t.Name(), "Body")
		called = strings.ToUpper(called[:1]) + called[1:]
		if _, known := s[called]; !known {
			s[called] = nil // a type may contain itself
			properties, required := object{}, []string{}
			s.members(t, properties, &required)
			s[called] = object{"type": "object", "properties": properties, "required": required}
		}
		return object{"$ref": "#/components/schemas/" + called}
	}
	return integer
}

// results returns the schemas of the replies to operations.
func (s schemas) results() []any {
	found := map[string]any{}
	add := func(body any) {
		schema := s.of(reflect.TypeOf(body)).(object)
		found[schema["$ref"].(string)] = schema
	}
	add(exchange.Problem{})
	for _, row := range describedRoutes {
		for _, body := range row.replies {
			if row.op != nil && body != nil {
				add(body)
			}
		}
	}
	var all []any
	for _, ref := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[ref])
	}
	return all
}

func (s schemas) members(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			s.members(f.Type, properties, required)
			continue
		}
		called, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		properties[called] = s.of(f.Type)
		if strings.Contains(options, "omitempty") {
			continue
		}
		*required = append(*required, called)
		if property, ok := properties[called].(object); ok && f.Type.Kind() == reflect.Pointer {
			nullable := maps.Clone(property)
			nullable["type"] = []string{property["type"].(string), "null"}
			properties[called] = nullable
		}
	}
}

// describe returns the description of the routes.
func describe(t *testing.T, routes []exchange.Route) []byte {
	components, paths, refusals := schemas{}, object{}, object{}
	components.of(reflect.TypeFor[exchange.Problem]())
	var variants, groups []any
	examples := readExamples(t)
	for _, tag := range tags {
		groups = append(groups, object{"name": tag.name, "description": tag.description})
	}
	for _, op := range operations {
		called := "Operation-" + op.name
		body := bodyOf(op.batchFields(), op.batchRequired()|fieldOp, op.expires)
		body["properties"].(object)["op"] = object{"const": op.name}
		components[called] = body
		variants = append(variants, object{"$ref": "#/components/schemas/" + called})
	}
	components["Operation"] = object{"oneOf": variants}
	for _, r := range routes {
		row, known := describedRoutes[r.Method+" "+r.Path]
		if !known {
			t.Errorf("%s %s has no row in describedRoutes", r.Method, r.Path)
			continue
		}
		path := regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path, "{$1}")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(r.Method)] = row.describe(r, components, refusals, examples[operationID(r)])
	}
	whole := object{
		"openapi": "3.1.0",
		"info": object{"title": "Signalbox", "version": "0.2.0", "description": "Semaphores that a cluster shares. docs/api.md and the pages that it lists have the whole contract.",
			"license": object{"name": "See LICENSE", "url": "https://github.com/signalbox/signalbox"}},
		"servers": []any{object{"url": "/"}}, "tags": groups, "paths": paths,
		"security":   []any{object{}, object{"bearer": []any{}}, object{"basic": []any{}}},
		"components": object{"schemas": components, "responses": refusals, "securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}, "basic": object{"type": "http", "scheme": "basic"}}},
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(whole); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// bodyOf is the schema of a body with these fields. Its ttl is at least 1 ms if the session or leases expire.
func bodyOf(all, needed fields, expires bool) object {
	properties, required := object{}, []string{}
	for _, member := range slices.Sorted(maps.Keys(bodyMembers)) {
		if field := bodyMembers[member].field; all.has(field) {
			properties[member] = memberTypes[member]
			switch {
			case expires && member == "ttl":
				properties[member] = durationFrom(1)
			case all.has(fieldSettings) && member == "head_start":
				properties[member] = spanOrNull(0)
			case all.has(fieldBase64) && member == "value":
				properties[member] = text
			}
			if needed.has(field) {
				required = append(required, member)
			}
		}
	}
	return object{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

func operationID(r exchange.Route) string {
	return strings.NewReplacer("/v1/", "", "/", "-", ":", "", ".", "-").Replace(strings.ToLower(r.Method) + "-" + r.Path)
}

func (d described) describe(r exchange.Route, components schemas, refusals object, shown example) object {
	operation := object{"summary": d.summary, "operationId": operationID(r)}
	for _, tag := range tags {
		if strings.Split(r.Path, "/")[2] == tag.part {
			operation["tags"] = []string{tag.name}
		}
	}
	operation["parameters"] = d.parameters(r)
	if body := d.bodySchema(shown.Request); body != nil {
		operation["requestBody"] = body
	}
	replies := object{}
	for status, body := range d.replies {
		reply := object{"description": http.StatusText(status)}
		content := object{}
		switch body := body.(type) {
		case nil:
		case string:
			reply["content"] = object{body: object{}}
		case object:
			content["schema"] = body
		default:
			content["schema"] = components.of(reflect.TypeOf(body))
		}
		if replyBody := shown.Replies[strconv.Itoa(status)]; replyBody != nil {
			content["example"] = replyBody
		}
		if len(content) > 0 {
			reply["content"] = object{"application/json": content}
		}
		replies[strconv.Itoa(status)] = reply
	}
	byStatus := map[int][]string{}
	for _, code := range slices.Sorted(strings.FieldsSeq(d.allCodes(r))) {
		status := exchange.NewProblem(code, "").Status
		byStatus[status] = append(byStatus[status], code)
	}
	for status, codes := range byStatus {
		called := strconv.Itoa(status) + "-" + strings.Join(codes, "-")
		refusals[called] = object{"description": strings.Join(codes, ", "), "content": object{"application/problem+json": object{"schema": object{
			"allOf": []any{object{"$ref": "#/components/schemas/Problem"}, object{"properties": object{"code": object{"enum": codes}}}}}}}}
		replies[strconv.Itoa(status)] = object{"$ref": "#/components/responses/" + called}
	}
	operation["responses"] = replies
	return operation
}

// allCodes returns the codes of a route's problems. TestEveryReplyIsReached of httpapi checks that the route really
// gives them.
func (d described) allCodes(r exchange.Route) string {
	codes := d.codes + " invalid-request wrong-host limit-reached internal"
	reads := r.Method == "GET"
	if r.Path != "/v1/openapi.json" {
		codes += " unauthenticated"
	}
	if !reads || strings.Contains(r.Path, ":name") || r.Path == "/v1/events" || r.Path == "/v1/snapshot" {
		codes += " forbidden"
	}
	switch {
	case !reads:
		codes += " request-timeout too-large unsupported-encoding draining"
	case r.Path != "/v1/openapi.json" && r.Path != "/v1/cluster":
		codes += " no-leader behind draining"
	}
	if d.op != nil {
		codes += " no-leader not-applied states-differ outcome-unknown overloaded storage-full level-too-low key-reused"
		if d.op.body.has(fieldWait) { // the end of a wait is confirmed by a read
			codes += " behind"
		}
	}
	return codes
}

// groupSegment is a group in a path.
var groupSegment = object{"type": "string", "pattern": `^(-|[^-\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]{0,127}|--[^\x00-\x1f\x7f-\x9f]{0,127})$`,
	"description": "The empty group is -, and a group that begins with - has another - before it."}

// parameters describes the parameters of the path, of the query and of the headers.
func (d described) parameters(r exchange.Route) []any {
	parameters := []any{}
	for _, m := range regexp.MustCompile(`:(\w+)`).FindAllStringSubmatch(r.Path, -1) {
		schema := sessionID
		if m[1] == "name" {
			schema = name
		} else if m[1] == "group" {
			schema = groupSegment
		} else if m[1] == "member" {
			schema = memberID
		}
		parameters = append(parameters, object{"in": "path", "name": m[1], "required": true, "schema": schema})
	}
	for _, called := range d.queries(r) {
		name := strings.TrimRight(called, "*!")
		parameter := object{"in": "query", "name": name, "schema": queryTypes[name]}
		if strings.HasSuffix(called, "*") {
			parameter["schema"] = list(queryTypes[name])
		}
		if strings.HasSuffix(called, "!") {
			parameter["required"] = true
		}
		parameters = append(parameters, parameter)
	}
	for _, header := range d.headers(r) {
		parameters = append(parameters, object{"in": "header", "name": header, "schema": headerTypes[header]})
	}
	return parameters
}

// queries returns the parameters of the query. "name*" may be repeated, and "name!" is required.
func (d described) queries(r exchange.Route) []string {
	found := strings.Fields(d.query)
	if d.op != nil {
		for _, known := range queryParams {
			if (d.op.query | d.op.body&fieldEither).has(known.field) {
				found = append(found, known.name)
			}
		}
	} else if r.Method == "GET" && r.Path != "/v1/snapshot" && r.Path != "/v1/openapi.json" {
		found = append(found, "consistency", "min_index")
	}
	return found
}

func (d described) headers(r exchange.Route) []string {
	found := []string{}
	if d.op != nil {
		found = append(found, "Idempotency-Key")
		if d.op.query.has(fieldMatch) {
			found = append(found, "If-Match")
		}
		if d.op.query.has(fieldOnlyNew) {
			found = append(found, "If-None-Match")
		}
	}
	if r.Path == "/v1/events" {
		found = append(found, "Last-Event-ID")
	}
	return found
}

func (d described) bodySchema(shown json.RawMessage) object {
	var schema object
	switch {
	case d.body == "*":
		return object{"required": true, "content": object{"application/octet-stream": object{}}}
	case d.op != nil && d.op.body != 0:
		schema = bodyOf(d.op.body, d.op.required|d.op.body&fieldName, d.op.expires)
	case d.op != nil || d.body == "":
		return nil
	default:
		properties, required := object{}, []string{}
		for _, member := range strings.Fields(d.body) {
			called := strings.TrimPrefix(strings.TrimSuffix(member, "!"), "feature_")
			properties[called] = memberTypes[strings.TrimSuffix(member, "!")]
			if strings.HasSuffix(member, "!") {
				required = append(required, called)
			}
		}
		schema = object{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	content := object{"schema": schema}
	if shown != nil {
		content["example"] = shown
	}
	return object{"required": len(schema["required"].([]string)) > 0, "content": object{"application/json": content}}
}

// TestOpenAPI compares the description with the tables of the router.
func TestOpenAPI(t *testing.T) {
	x, err := exchange.New(exchange.Config{Node: struct{ exchange.Node }{}})
	if err != nil {
		t.Fatal(err)
	}
	routes := New(x, Config{}).Routes()
	if len(routes) != len(describedRoutes) {
		t.Errorf("%d routes, %d are described", len(routes), len(describedRoutes))
	}
	for member := range bodyMembers {
		if memberTypes[member] == nil {
			t.Errorf("the member %s has no schema in memberTypes", member)
		}
	}
	for _, param := range queryParams {
		if queryTypes[param.name] == nil {
			t.Errorf("the query parameter %s has no schema in queryTypes", param.name)
		}
	}
	got := describe(t, routes)
	if *update {
		if err := os.WriteFile("openapi.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(got, openAPI) {
		t.Error("openapi.json differs from the tables: write it anew by go test ./httpapi/v1 -run TestOpenAPI -update")
	}
}
