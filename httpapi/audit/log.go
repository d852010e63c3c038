package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// Record is a change, or the attempt of a change. The log writes it as one line of JSON with these fields.
type Record struct {
	Time       time.Time `json:"time"` // by the wall clock, for people
	Node       string    `json:"node"` // the node that has replied
	Index      uint64    `json:"index,omitempty"`
	Identity   string    `json:"identity,omitempty"`
	Remote     string    `json:"remote,omitempty"`
	Request    string    `json:"request,omitempty"`
	Operation  string    `json:"operation"`
	Semaphore  string    `json:"semaphore,omitempty"`
	Semaphores []string  `json:"semaphores,omitempty"` // of an operation on several
	Group      string    `json:"group,omitempty"`      // of the semaphore
	Item       string    `json:"item,omitempty"`       // never its value
	Session    string    `json:"session,omitempty"`    // a text, since it has 64 bits
	Member     string    `json:"member,omitempty"`     // of the cluster
	Address    string    `json:"address,omitempty"`    // that a member gets
	Level      uint32    `json:"level,omitempty"`      // requested feature level
	Sessions   string    `json:"sessions,omitempty"`   // "keep" or "end": the sessions of a restored backup
	Outcome    string    `json:"outcome"`              // a code of the state machine or of a problem
	Reason     string    `json:"reason,omitempty"`
	Replayed   bool      `json:"replayed,omitempty"`
	TookOver   bool      `json:"took_over,omitempty"` // the identity has become the owner of the session
}

// droppedLine stands for the dropped lines before it.
type droppedLine struct {
	Time    time.Time `json:"time"`
	Node    string    `json:"node"`
	Dropped int64     `json:"dropped"`
}

// Stderr is the path that stands for the standard error output.
const Stderr = "stderr"

// Config is the configuration of a Log.
type Config struct {
	Path    string    // of the file, or Stderr
	Stderr  io.Writer // written to for the path Stderr
	Node    string    // the id of this node
	Logger  hclog.Logger
	Proxies Proxies // whose word on the address of a client counts
}

// maxBuffered bounds the bytes that wait for the file.
const maxBuffered = 4 << 20

// Log is the audit log of one node.
type Log struct {
	config  Config
	lines   prometheus.Counter
	dropped prometheus.Counter
	work    chan struct{} // wakes run
	ended   chan struct{}

	mu       sync.Mutex
	waiting  waiting
	lost     int64 // dropped records that no line mentions
	reopen   bool
	stopping bool
}

// waiting is the lines that wait for the file.
type waiting struct {
	bytes   []byte
	records int64
	noted   int64 // dropped records that its lines mention
}

// Open opens the file, or makes it, and begins to write. The caller ends it with Close.
func Open(config Config) (*Log, error) {
	file, err := openFile(config)
	if err != nil {
		return nil, err
	}
	l := newLog(config)
	go l.run(file)
	return l, nil
}

func newLog(config Config) *Log {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &Log{config: config, work: make(chan struct{}, 1), ended: make(chan struct{}),
		lines:   counter("signalbox_audit_lines_total", "Lines of the audit log that were taken."),
		dropped: counter("signalbox_audit_dropped_total", "Lines of the audit log that were dropped, since the file is too slow or can't be written.")}
}

// None returns a Log that is not written, for its metrics.
func None() *Log { return newLog(Config{}) }

func openFile(config Config) (io.WriteCloser, error) {
	if config.Path == Stderr {
		return unclosed{config.Stderr}, nil
	}
	return os.OpenFile(config.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// Proxies returns the proxies whose word counts.
func (l *Log) Proxies() Proxies { return l.config.Proxies }

// Write takes a record, whose time and node it sets. It does not block.
func (l *Log) Write(r Record) {
	r.Time, r.Node = time.Now().UTC(), l.config.Node
	line := encoded(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost > 0 {
		line = append(encoded(droppedLine{r.Time, r.Node, l.lost}), line...)
	}
	if l.stopping || len(l.waiting.bytes)+len(line) > maxBuffered {
		l.lost++
		l.dropped.Inc()
		return
	}
	l.waiting.bytes = append(l.waiting.bytes, line...)
	l.waiting.records++
	l.waiting.noted += l.lost
	l.lost = 0
	l.lines.Inc()
	l.wake()
}

// encoded returns the line of a record. It does not escape <, > and &.
func encoded(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // these shapes can always be encoded; it ends the line
	return out.Bytes()
}

// wake makes run handle the waiting lines. It does not block.
func (l *Log) wake() {
	select {
	case l.work <- struct{}{}:
	default:
	}
}

// Reopen opens the file again, after it was renamed. It does not block.
func (l *Log) Reopen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reopen = true
	l.wake()
}

// closeWithin bounds Close: a disk that hangs must not hold a node up.
const closeWithin = time.Second

// Close writes the waiting lines, and closes the file. It blocks until that is done, for a second at most.
// Later lines are dropped.
func (l *Log) Close() {
	l.mu.Lock()
	l.stopping = true
	l.wake()
	l.mu.Unlock()
	select {
	case <-l.ended:
	case <-time.After(closeWithin):
		l.config.Logger.Warn("the last lines of the audit log were not written in time")
	}
}

// run writes the buffer until the log is closed.
func (l *Log) run(file io.WriteCloser) {
	defer close(l.ended)
	defer func() { file.Close() }()
	failing := false // the last write failed, and may have left half a line
	for range l.work {
		l.mu.Lock()
		next, reopen, stopping := l.waiting, l.reopen, l.stopping
		l.waiting, l.reopen = waiting{}, false
		l.mu.Unlock()
		if reopen {
			file = l.reopened(file)
		}
		if next.records > 0 {
			if failing {
				next.bytes = append([]byte("\n"), next.bytes...)
			}
			_, err := file.Write(next.bytes)
			if err != nil {
				l.failed(next, err, failing)
			}
			failing = err != nil
		}
		if stopping {
			return
		}
	}
}

// reopened opens the file again and returns it, or the file in use if that fails.
func (l *Log) reopened(file io.WriteCloser) io.WriteCloser {
	next, err := openFile(l.config)
	if err != nil {
		l.config.Logger.Error("the audit log can't be opened again: the file before stays in use", "error", err)
		return file
	}
	file.Close()
	return next
}

// failed counts the records of a failed write, and logs the first failure of a row.
func (l *Log) failed(line waiting, err error, again bool) {
	l.mu.Lock()
	l.lost += line.records + line.noted
	l.mu.Unlock()
	l.dropped.Add(float64(line.records))
	if !again {
		l.config.Logger.Error("the audit log can't be written: lines are dropped", "error", err)
	}
}

// Collectors returns the metrics of the log.
func (l *Log) Collectors() []prometheus.Collector {
	return []prometheus.Collector{l.lines, l.dropped}
}
