package cluster

import (
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// recordedLog keeps the lines of a log, for tests that look for them.
type recordedLog struct {
	hclog.Logger
	mu   sync.Mutex
	text strings.Builder
}

func newRecordedLog() *recordedLog {
	l := &recordedLog{}
	l.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: l})
	return l
}

func (l *recordedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines returns those that contain a text.
func (l *recordedLog) lines(part string) []string {
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
