package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// loader is one kind of load: a keep-alive connection to an address, on which
// it sends request i of connection c and waits for the reply.
type loader struct {
	name       string
	addresses  []string // connections take turns
	request    func(c, i int) (method, path, body string)
	operations int // in one request

	trust *tls.Config // nil: plain HTTP
	head  string      // further lines of a request's head
}

// phase is how long one kind of load runs before the next takes its turn, and
// rounds is how many turns each has: the machine's speed drifts, and the kinds
// that are compared must run under the same conditions.
const (
	phase  = 2 * time.Second
	rounds = 5
)

// rate is how many operations a load made in a second, and in a second of this
// process's processor time: that of all nodes and of the clients. A busy machine
// moves the first one; the second one says what an operation costs.
type rate struct{ wall, processor float64 }

// compare runs the loads in turns and returns, for each, the medians of its rates
// over the rounds.
func compare(b *testing.B, connections int, loaders ...*loader) []rate {
	b.Helper()
	turns := make([]turn, len(loaders))
	for i, l := range loaders {
		turns[i] = turn{l.name, func(b *testing.B) rate { return l.run(b, connections) }}
	}
	return inTurns(b, turns)
}

// turn is one phase of a load.
type turn struct {
	name string
	run  func(b *testing.B) rate
}

// inTurns runs the turns in rounds and returns the medians of their rates.
func inTurns(b *testing.B, turns []turn) []rate {
	b.Helper()
	walls, processors := make([][]float64, len(turns)), make([][]float64, len(turns))
	for range rounds {
		for i, t := range turns {
			r := t.run(b)
			walls[i], processors[i] = append(walls[i], r.wall), append(processors[i], r.processor)
		}
	}
	medians := make([]rate, len(turns))
	for i, t := range turns {
		slices.Sort(walls[i])
		slices.Sort(processors[i])
		medians[i] = rate{walls[i][rounds/2], processors[i][rounds/2]}
		b.Logf("%-40s %9.0f operations/s (%.0f … %.0f), %9.0f in a processor's second",
			t.name, medians[i].wall, walls[i][0], walls[i][rounds-1], medians[i].processor)
	}
	return medians
}

// processor returns the processor time that this process has used.
func processor(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// run loads for one phase and returns its rates.
func (l *loader) run(b *testing.B, connections int) rate {
	b.Helper()
	conns := make([]net.Conn, connections)
	for c := range conns {
		conns[c] = l.dial(b, c)
		defer conns[c].Close()
	}
	before := processor(b)
	var done atomic.Int64
	var group sync.WaitGroup
	failures := make(chan error, connections)
	start := time.Now()
	for c := range connections {
		group.Go(func() {
			if err := l.connection(c, conns[c], start.Add(phase), &done); err != nil {
				failures <- err
			}
		})
	}
	group.Wait()
	select {
	case err := <-failures:
		b.Fatalf("%s: %v", l.name, err)
	default:
	}
	operations := float64(done.Load() * int64(l.operations))
	return rate{operations / time.Since(start).Seconds(), operations / (processor(b) - before).Seconds()}
}

// dial opens connection c, with its handshake.
func (l *loader) dial(b *testing.B, c int) net.Conn {
	b.Helper()
	conn, err := net.Dial("tcp", l.addresses[c%len(l.addresses)])
	must(b, err)
	if l.trust == nil {
		return conn
	}
	secure := tls.Client(conn, l.trust)
	must(b, secure.Handshake())
	return secure
}

func (l *loader) connection(c int, conn net.Conn, end time.Time, done *atomic.Int64) error {
	address := l.addresses[c%len(l.addresses)]
	answers := bufio.NewReader(conn)
	for i := 0; time.Now().Before(end); i++ {
		method, path, body := l.request(c, i)
		if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s", method, path, address, l.head, len(body), body); err != nil {
			return err
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		if answer.StatusCode >= 300 {
			return fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, text)
		}
		done.Add(1)
	}
	return nil
}
