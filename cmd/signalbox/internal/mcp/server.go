package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
)

// versions are the supported revisions of the protocol, the latest first.
var versions = []string{"2025-11-25", "2025-06-18", "2024-11-05"} // not 2025-03-26, which has batches

const (
	longestMessage = 1 << 20 // bytes of a line of the input
	maxCalls       = 64      // of tools at the same time
	endTimeout     = 2 * time.Second
)

// The codes of JSON-RPC errors.
const (
	notJSON       = -32700
	notRequest    = -32600
	unknownMethod = -32601
	badParameters = -32602
)

// Server serves one client of the protocol.
type Server struct {
	version string // of this program
	permits *permits

	writing sync.Mutex
	out     io.Writer

	mu    sync.Mutex
	calls map[string]context.CancelFunc // running calls of tools, by the id of their request
}

// New returns a server for c that writes to out. After a crash of the server, its permits are free after ttl.
func New(c *signalbox.Client, version string, ttl time.Duration, out io.Writer) *Server {
	return &Server{version: version, permits: newPermits(c, ttl), out: out, calls: map[string]context.CancelFunc{}}
}

// message is a request, or, without an id, a notification.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

type object = map[string]any

// Serve reads messages until in or ctx ends. Then it ends all calls and the session, and waits up to 2 s for their end.
// It fails when in can't be read.
func (s *Server) Serve(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	read := make(chan error, 1)
	var calls sync.WaitGroup
	go func() { read <- s.read(ctx, bufio.NewReaderSize(in, longestMessage), &calls) }()
	var err error
	select {
	case err = <-read:
	case <-ctx.Done(): // a pending read of a terminal or a pipe can't be interrupted
	}
	cancel()
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer done()
	s.permits.end(ending)
	ended := make(chan struct{})
	go func() {
		calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ending.Done(): // don't wait for a client that has stopped reading
	}
	return err
}

// read handles the lines of the input until its end.
func (s *Server) read(ctx context.Context, in *bufio.Reader, calls *sync.WaitGroup) error {
	for {
		line, err := in.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) { // skip the rest of the line before the reply, since the client may read only after it has written the whole line
			_, err = in.ReadSlice('\n')
		}
		if tooLong {
			s.refuse(nil, notRequest, fmt.Sprintf("A message has at most %d bytes.", longestMessage))
		} else if line = bytes.TrimSpace(line); len(line) > 0 {
			s.receive(ctx, line, calls)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// receive handles one message. Calls of tools run in goroutines.
func (s *Server) receive(ctx context.Context, line []byte, calls *sync.WaitGroup) {
	var m message
	err := json.Unmarshal(line, &m)
	switch {
	case !json.Valid(line):
		s.refuse(nil, notJSON, "This is not JSON.")
	case err != nil:
		s.refuse(nil, notRequest, "This is not a request: "+err.Error())
	case m.Method == "" && len(m.ID) > 0 && m.Version == "2.0":
		return // a response, although the server sends no requests
	case m.Version != "2.0" || m.Method == "":
		s.refuse(m.ID, notRequest, `A request has "jsonrpc": "2.0" and a method.`)
	case len(m.ID) == 0:
		s.notified(&m)
	case m.Method == "tools/call":
		tool, arguments, err := parseCall(m.Params)
		if err != nil {
			s.refuse(m.ID, badParameters, err.Error())
			return
		}
		called, cancel := context.WithCancel(ctx)
		if !s.track(string(m.ID), cancel) {
			cancel()
			s.refuse(m.ID, notRequest, fmt.Sprintf("A client has at most %d calls at a time, each with another id.", maxCalls))
			return
		}
		calls.Go(func() {
			defer cancel()
			result := s.perform(called, tool, arguments)
			if s.untrack(string(m.ID)); called.Err() == nil { // a cancelled request gets no response
				s.reply(m.ID, "result", result)
			}
		})
	default:
		s.answer(&m)
	}
}

// answer replies to a request that does not call a tool.
func (s *Server) answer(m *message) {
	switch m.Method {
	case "initialize":
		var parameters struct {
			ProtocolVersion string `json:"protocolVersion"`
			ClientInfo      struct {
				Name string `json:"name"`
			} `json:"clientInfo"`
		}
		if err := json.Unmarshal(m.Params, &parameters); err != nil {
			s.refuse(m.ID, badParameters, err.Error())
			return
		}
		if !slices.Contains(versions, parameters.ProtocolVersion) {
			parameters.ProtocolVersion = versions[0]
		}
		s.permits.nameClient(parameters.ClientInfo.Name)
		s.reply(m.ID, "result", object{"protocolVersion": parameters.ProtocolVersion, "capabilities": object{"tools": object{}},
			"serverInfo": object{"name": "signalbox", "version": s.version}, "instructions": instructions})
	case "ping":
		s.reply(m.ID, "result", object{})
	case "tools/list":
		s.reply(m.ID, "result", object{"tools": descriptions()})
	default:
		s.refuse(m.ID, unknownMethod, fmt.Sprintf("There is no method %q.", m.Method))
	}
}

// notified handles a notification. It ignores unknown notifications.
func (s *Server) notified(m *message) {
	var cancelled struct {
		ID json.RawMessage `json:"requestId"`
	}
	if m.Method == "notifications/cancelled" && json.Unmarshal(m.Params, &cancelled) == nil {
		s.mu.Lock()
		cancel := s.calls[string(cancelled.ID)]
		s.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	}
}

// track records a running call. It returns false if too many calls run.
func (s *Server) track(id string, cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) == maxCalls || s.calls[id] != nil {
		return false
	}
	s.calls[id] = cancel
	return true
}

func (s *Server) untrack(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, id)
}

// perform calls a tool. A failure becomes a result too, so that the model can read it.
func (s *Server) perform(ctx context.Context, t *tool, arguments *arguments) object {
	value, err := t.call(ctx, s.permits, arguments)
	if err != nil {
		return object{"isError": true, "content": textOf(explain(err))}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return object{"isError": true, "content": textOf(err.Error())}
	}
	return object{"content": textOf(string(text)), "structuredContent": json.RawMessage(text)}
}

func textOf(text string) []object { return []object{{"type": "text", "text": text}} }

// explain returns the failure of a call, and what a model can do about it.
func explain(err error) string {
	switch {
	case errors.Is(err, signalbox.ErrUnknownSemaphore):
		return sentence(err) + " The tool list shows the names."
	case errors.Is(err, signalbox.ErrNever):
		return sentence(err) + " The semaphore never has so many permits."
	}
	return err.Error()
}

// sentence returns the text of an error with one full stop.
func sentence(err error) string { return strings.TrimSuffix(err.Error(), ".") + "." }

func (s *Server) refuse(id json.RawMessage, code int, text string) {
	s.reply(id, "error", failure{code, text})
}

// reply writes a response. It ignores write errors: a client that no longer reads also closes the input, which ends
// Serve.
func (s *Server) reply(id json.RawMessage, kind string, value any) {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	line, err := json.Marshal(object{"jsonrpc": "2.0", "id": id, kind: value})
	if err != nil {
		return // never happens: the id is valid JSON, and so are the server's values
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	_, _ = s.out.Write(append(line, '\n'))
}
