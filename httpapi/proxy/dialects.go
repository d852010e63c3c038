package proxy

import (
	"bytes"
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

// dialect reads a request of a dialect.
func (a *routedRequest) dialect(path []string) (subject, error) {
	switch path[0] {
	case "terraform": // further parameters belong to the name
		name, query := strings.Trim(strings.Join(path, "/"), "/"), a.r.URL.Query()
		query.Del("ID")
		query.Del("method")
		if len(query) > 0 {
			name += "?" + query.Encode()
		}
		return subject{names: []string{name}}, nil
	case "semaphore":
		return a.nodeRED(path)
	case "v1":
		if isConsul(a.r.URL.Path) {
			return a.consul(path[1:]), nil
		}
		return a.fleetLock(path[1])
	}
	return a.throttle(path)
}

// nodeRED reads a body of JSON, or of a form.
func (a *routedRequest) nodeRED(path []string) (subject, error) {
	if a.r.Method != http.MethodPost {
		name := path[1]
		if name == "value" && a.r.Method != http.MethodDelete { // a semaphore may have that name
			name = path[2]
		}
		return subject{names: notEmpty(name)}, nil
	}
	data, err := a.body()
	if err != nil {
		return subject{}, err
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	kind, _, _ := mime.ParseMediaType(a.r.Header.Get("Content-Type")) // as the node reads it
	if kind == "application/x-www-form-urlencoded" && !bytes.HasPrefix(data, []byte("{")) {
		return subject{names: notEmpty(lastOfForm(string(data), "name"))}, nil
	}
	return subject{names: notEmpty(textOf(membersOf(data)["name"]))}, nil
}

// lastOfForm returns the last value of a member, since Node-RED's dialect uses the last value.
func lastOfForm(form, member string) (value string) {
	for pair := range strings.SplitSeq(form, "&") {
		if key, text, _ := strings.Cut(pair, "="); string(exchange.FormBytes(key)) == member {
			value = string(exchange.FormBytes(text))
		}
	}
	return value
}

func (a *routedRequest) throttle(path []string) (subject, error) {
	switch {
	case path[0] == "remainder":
		return subject{names: notEmpty(a.r.URL.Query().Get("semaphore"))}, nil
	case path[0] == "restore":
		members, err := a.members()
		var counts map[string]json.RawMessage
		_ = json.Unmarshal(members["acquired"], &counts) // the node refuses what is no object
		s := subject{sessions: notEmpty(string(members["peer_id"]))}
		s.names = slices.Sorted(maps.Keys(counts))
		return s, err
	case path[0] == "peers" && path[1] == "":
		return subject{cluster: true}, nil
	case path[0] == "peers":
		s := subject{sessions: []string{strings.TrimLeft(path[1], "+0")}}
		if path[2] != "is_acquired" || a.r.Method != http.MethodGet {
			s.names = notEmpty(path[2])
		}
		return s, nil
	}
	return subject{}, nil
}

// fleetLock reads the group: its semaphore has the name of the group. (Session ids are derived from names.)
func (a *routedRequest) fleetLock(route string) (subject, error) {
	if route != "pre-reboot" && route != "steady-state" {
		return subject{}, nil
	}
	data, err := a.body()
	if err != nil {
		return subject{}, err
	}
	var body struct { // as the node reads it: names of members in any case, the last of several
		Params struct{ Group string } `json:"client_params"`
	}
	_ = json.Unmarshal(data, &body) // the node refuses another body
	return subject{names: []string{"fleetlock/" + body.Params.Group}}, nil
}

// isConsul reports whether a path belongs to the keys and sessions of Consul's dialect.
func isConsul(path string) bool {
	return strings.HasPrefix(path, "/v1/kv/") || strings.HasPrefix(path, "/v1/session/")
}

// consul reads a request below /v1/: sessions are in the path or in the query.
func (a *routedRequest) consul(path []string) subject {
	if path[0] == "session" {
		switch path[1] {
		case "create":
			return subject{}
		case "list", "node":
			return subject{cluster: true}
		}
		return subject{sessions: notEmpty(consulSession(path[2]))}
	}
	key, query := strings.TrimPrefix(a.r.URL.Path, "/v1/kv/"), a.r.URL.Query()
	if query.Has("recurse") || query.Has("keys") {
		return subject{below: &key}
	}
	s := subject{names: notEmpty(key)}
	for _, parameter := range []string{"acquire", "release"} {
		s.sessions = append(s.sessions, notEmpty(consulSession(query.Get(parameter)))...)
	}
	return s
}

// consulSession returns the native id of a session from its id in Consul's dialect, or "" for another text.
func consulSession(text string) string {
	const prefix = "5369676e-616c-626f-"
	high, low, ok := strings.Cut(strings.TrimPrefix(strings.ToLower(text), prefix), "-")
	id, err := strconv.ParseUint(high+low, 16, 64)
	if !ok || err != nil || len(text) != len(prefix)+17 {
		return ""
	}
	return exchange.FormatSession(id)
}
