package reply

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"net/url"
	"strings"
	"time"
)

// The API has durations as members of whole milliseconds, whose names end in _ms. The client's types have them as
// time.Duration, and write the same members in JSON.

// Times maps the names of members to the durations that they set.
type Times map[string]*time.Duration

// ReadTimes decodes a JSON object into a value, whose type must not have an UnmarshalJSON, and into durations. A
// missing or null member does not change its duration.
func ReadTimes(data []byte, into any, durations Times) error {
	if err := json.Unmarshal(data, into); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	for name, d := range durations {
		var ms *int64
		if text := members[name]; text != nil {
			if err := json.Unmarshal(text, &ms); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if ms != nil {
			const limit = math.MaxInt64 / int64(time.Millisecond)
			*d = time.Duration(min(max(*ms, -limit), limit)) * time.Millisecond
		}
	}
	return nil
}

// Named is a duration and the name of its member.
type Named struct {
	member string
	value  time.Duration
}

// Member names the member for a duration.
func Member(name string, d time.Duration) Named { return Named{name, d} }

// WriteTimes encodes a value, whose type must not have a MarshalJSON, and appends the durations to its members.
func WriteTimes(value any, durations ...Named) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.Write(text[:len(text)-1])
	for _, d := range durations {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%d", d.member, d.value.Milliseconds())
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// Pages yields the members of a list, and reads a page at a time. read sends a query, which it may change, and returns
// a page with the cursor of the next page, "" after the last. An error is yielded last.
func Pages[T any](query url.Values, read func(query url.Values) (page []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := maps.Clone(query)
		for {
			page, next, err := read(query)
			if err != nil {
				var empty T
				yield(empty, err)
				return
			}
			for _, member := range page {
				if !yield(member, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			query.Set("cursor", next)
		}
	}
}
