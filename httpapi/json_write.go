package httpapi

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"github.com/signalbox/signalbox/fsm"
)

// jsonPairs is metadata as an object, in the order of its keys.
type jsonPairs []fsm.Pair

// MarshalJSON writes {"key":"value",…}.
func (pairs jsonPairs) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, p := range pairs {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendText(out, p.Key)
		out = append(out, ':')
		out = appendText(out, p.Value)
	}
	return append(out, '}'), nil
}

// wantCounts is {"name":count,…}, in the order of the list asked for.
type wantCounts []fsm.Want

// MarshalJSON writes {"name":count,…}.
func (wants wantCounts) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, want := range wants {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendText(out, want.Semaphore)
		out = append(out, ':')
		out = strconv.AppendInt(out, want.Count, 10)
	}
	return append(out, '}'), nil
}

// appendText quotes a text as encodeJSON does: <, > and & as they are.
func appendText(out []byte, text string) []byte {
	if !strings.ContainsAny(text, "<>&") {
		quoted, _ := json.Marshal(text) // a string can always be marshalled
		return append(out, quoted...)
	}
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text)
	return append(out, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled keeps one huge reply from pinning its buffer for ever.
const maxPooled = 1 << 20

// encodeJSON lends write the JSON of a body, with a line's end.
func encodeJSON(body any, write func(data []byte) error) error {
	buffer := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= maxPooled {
			buffers.Put(buffer)
		}
	}()
	buffer.Reset()
	if err := writeJSON(buffer, body); err != nil {
		return err
	}
	return write(buffer.Bytes())
}

func writeJSON(to *bytes.Buffer, body any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(body)
}
