package logtest

import (
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// Log is a logger that keeps its lines, from level debug on. Safe for concurrent use.
type Log struct {
	hclog.Logger
	mu   sync.Mutex
	text strings.Builder
}

// New returns an empty log.
func New() *Log {
	l := &Log{}
	l.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: l})
	return l
}

// Write implements io.Writer, for the logger.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// Lines returns the lines that contain a text.
func (l *Log) Lines(part string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}
