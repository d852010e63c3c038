package httpapi_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/signalbox/signalbox/test/hostile"
)

// fields encodes the fields of a head, in pairs, behind the fields of a request that succeeds.
func fields(pairs ...string) []byte {
	all := append([]string{":method", "GET", ":scheme", "https", ":authority", "n1", ":path", "/livez"}, pairs...)
	return bareFields(all...)
}

func bareFields(pairs ...string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(pairs); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}) // into a buffer
	}
	return block.Bytes()
}

// whole sends a head that is a whole request.
func whole(block []byte) func(*frames) {
	return func(f *frames) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true})
	}
}

// raw sends a frame of any form.
func raw(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) func(*frames) {
	return func(f *frames) { _ = f.WriteRawFrame(kind, flags, stream, payload) }
}

// hostileFrames are what no client of HTTP/2 sends. The server ends the connection or the
// stream, or refuses the request.
func hostileFrames() map[string]func(*frames) {
	post := bareFields(":method", "POST", ":scheme", "https", ":authority", "n1", ":path", "/v1/semaphores", "content-length", "5")
	u32 := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	return map[string]func(*frames){
		"a name in capitals": whole(fields("X-A", "1")), "an unknown pseudo header": whole(fields(":evil", "1")), "a second path": whole(fields(":path", "/livez")),
		"a pseudo header behind others": whole(bareFields("x-a", "1", ":method", "GET", ":scheme", "https", ":path", "/livez")), "no path": whole(bareFields(":method", "GET", ":scheme", "https")),
		"no method": whole(bareFields(":scheme", "https", ":path", "/livez")), "an empty path": whole(bareFields(":method", "GET", ":scheme", "https", ":path", "")), "a status": whole(fields(":status", "200")),
		"a header of a connection": whole(fields("connection", "close")), "a transfer encoding": whole(fields("transfer-encoding", "chunked")), "te of gzip": whole(fields("te", "gzip")),
		"a line feed in a value": whole(fields("x-a", "a\nb")), "a NUL in a value": whole(fields("x-a", "a\x00b")), "an empty name": whole(fields("", "1")), "a name with a colon": whole(fields("x:a", "1")),
		"a header of 64 KB": func(f *frames) {
			block := fields("x-a", strings.Repeat("\x01", 64<<10))
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:1000], EndStream: true})
			for rest := block[1000:]; len(rest) > 0; rest = rest[min(len(rest), 16<<10):] {
				_ = f.WriteContinuation(1, len(rest) <= 16<<10, rest[:min(len(rest), 16<<10)])
			}
		},
		"continuations without end": func(f *frames) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields()})
			for range 10_000 {
				if f.WriteContinuation(1, false, bareFields("x-a", strings.Repeat("a", 100))) != nil {
					return
				}
			}
		},
		"a continuation of nothing": raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, fields()),
		"another frame inside a head": func(f *frames) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields()})
			_ = f.WritePing(false, [8]byte{})
		},
		"garbage as a head":        whole(bytes.Repeat([]byte{0xff}, 100)),
		"a reference to nothing":   whole([]byte{0xfe}),
		"a table of 4 GB":          whole([]byte{0x3f, 0xff, 0xff, 0xff, 0xff, 0x0f}),
		"padding beyond the frame": raw(http2.FrameHeaders, http2.FlagHeadersPadded|http2.FlagHeadersEndHeaders, 1, []byte{255, 0x82}),
		"an even stream":           raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 2, fields()),
		"a head on stream 0":       raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 0, fields()),
		"a stream that goes back": func(f *frames) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: fields(), EndHeaders: true, EndStream: true})
			f.head(fields(), true)
		},
		"data on an idle stream":         raw(http2.FrameData, http2.FlagDataEndStream, 5, []byte("x")),
		"data on stream 0":               raw(http2.FrameData, 0, 0, []byte("x")),
		"a longer body than announced":   func(f *frames) { f.head(post, false); _ = f.WriteData(1, true, []byte("longer than five")) },
		"a shorter body than announced":  func(f *frames) { f.head(post, false); _ = f.WriteData(1, true, []byte("x")) },
		"no body where one is announced": func(f *frames) { f.head(post, true) },
		"two lengths": func(f *frames) {
			f.head(append(bytes.Clone(post), bareFields("content-length", "6")...), false)
			_ = f.WriteData(1, true, []byte("hello"))
		},
		"a frame of 1 MiB": raw(http2.FrameData, 0, 1, make([]byte, 1<<20)),
		"a window that overflows": func(f *frames) {
			_ = f.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, u32(1<<31-1))
			_ = f.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, u32(1<<31-1))
		},
		"a window of 0 more":            raw(http2.FrameWindowUpdate, 0, 0, u32(0)),
		"a window of three bytes":       raw(http2.FrameWindowUpdate, 0, 0, []byte{0, 0, 1}),
		"settings on a stream":          raw(http2.FrameSettings, 0, 1, nil),
		"settings of seven bytes":       raw(http2.FrameSettings, 0, 0, make([]byte, 7)),
		"a confirmation with content":   raw(http2.FrameSettings, http2.FlagSettingsAck, 0, make([]byte, 6)),
		"an initial window of 2^32 - 1": raw(http2.FrameSettings, 0, 0, append([]byte{0, 4}, u32(1<<32-1)...)),
		"frames of 1 byte at most":      raw(http2.FrameSettings, 0, 0, append([]byte{0, 5}, u32(1)...)),
		"a ping of seven bytes":         raw(http2.FramePing, 0, 0, make([]byte, 7)),
		"a ping on a stream":            raw(http2.FramePing, 0, 1, make([]byte, 8)),
		"a reset of an idle stream":     raw(http2.FrameRSTStream, 0, 7, u32(8)),
		"a reset of stream 0":           raw(http2.FrameRSTStream, 0, 0, u32(8)),
		"a promise of a client":         raw(http2.FramePushPromise, 4, 1, append(u32(2), fields()...)),
		"a priority on itself":          raw(http2.FramePriority, 0, 1, append(u32(1), 1)),
		"a priority of four bytes":      raw(http2.FramePriority, 0, 1, u32(3)),
		"HTTP/1.1 behind the preface":   nil,
	}
}

// head sends the head of a request on stream 1.
func (f *frames) head(block []byte, ends bool) {
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: ends})
}

// TestHostileFrames: frames that break the rules of HTTP/2 have no other effect than an end
// or a refusal, floods of good ones are taken, and the server goes on.
func TestHostileFrames(t *testing.T) {
	list := hostile.Begin(t, "http2")
	s := secure(t)
	s.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	before := s.Node.State(t)
	check := func(t *testing.T) {
		t.Helper()
		client, _ := s.client(true)
		if status, _ := s.send(client, "GET /livez", nil); status != 200 || s.Node.State(t) != before {
			t.Errorf("afterwards: status %d, state %s", status, s.Node.State(t))
		}
	}
	begin := func(t *testing.T) *frames {
		t.Helper()
		conn, err := net.Dial("tcp", s.address)
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		return speak(t, conn, s.trust, 1<<20)
	}
	for name, send := range hostileFrames() {
		list.Case(name, func(t *testing.T) {
			f, began := begin(t), time.Now()
			if f.AllowIllegalWrites = true; send == nil {
				_, _ = io.WriteString(f.conn, "GET / HTTP/1.1\r\n\r\n")
			} else {
				send(f)
			}
			f.read(func() bool { return f.away || f.reset[1] || f.status[1] != "" })
			if taken := f.status[1] != "" && f.status[1][0] != '4'; taken || time.Since(began) > 25*time.Second {
				t.Errorf("status %q after %v", f.status[1], time.Since(began))
			}
			check(t)
		})
	}
	for name, send := range map[string]func(f *frames){
		"2,000 pings": func(f *frames) {
			for range 2000 {
				_ = f.WritePing(false, [8]byte{})
			}
		},
		"1,000 settings": func(f *frames) {
			for range 1000 {
				_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
			}
		},
		"1,000 requests that are reset at once": func(f *frames) {
			for range 1000 {
				stream := f.begin("GET", "/v1/semaphores/none", true)
				_ = f.WriteRSTStream(stream, http2.ErrCodeCancel)
			}
		},
		"1,000 frames without content": func(f *frames) {
			f.begin("POST", "/v1/semaphores", false)
			for range 1000 {
				_ = f.WriteData(1, false, nil)
			}
		},
		"1,000 unknown frames": func(f *frames) {
			for range 1000 {
				_ = f.WriteRawFrame(0x99, 0xff, 0, []byte("anything"))
			}
		},
	} {
		list.Case(name, func(t *testing.T) {
			f := begin(t)
			f.AllowIllegalWrites = true
			go func() { // what the server says; it may end the connection for its part
				for {
					if _, err := f.ReadFrame(); err != nil {
						return
					}
				}
			}()
			send(f)
			f.conn.Close()
			check(t)
		})
	}
}
