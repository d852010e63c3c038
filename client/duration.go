package client

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// The API has durations as members of whole milliseconds, with names that end in _ms. The
// types of this package have them as time.Duration, and as the same members in JSON.

// times are a value's durations, by the members that have them.
type times map[string]*time.Duration

// readTimes decodes a JSON object into a value without methods of its own for that, and
// into the durations beside it. A member that is missing or null leaves its duration.
func readTimes(data []byte, into any, durations times) error {
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
			const most = math.MaxInt64 / int64(time.Millisecond)
			*d = time.Duration(min(max(*ms, -most), most)) * time.Millisecond
		}
	}
	return nil
}

// named is one duration of a value that is encoded.
type named struct {
	member string
	value  time.Duration
}

// writeTimes encodes a value without methods of its own for that, and the durations
// behind its other members.
func writeTimes(value any, durations ...named) ([]byte, error) {
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
