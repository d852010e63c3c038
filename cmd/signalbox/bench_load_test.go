//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// loader is one kind of load: keep-alive connections to an address. On each connection it sends the connection's request
// and waits for the reply, again and again.
type loader struct {
	name       string
	addresses  []string // connections take turns
	request    func(c int) (method, path, body string)
	operations int // in one request

	trust *tls.Config // nil: plain HTTP
	head  string      // further lines of a request's head
	// library makes net/http's client send the requests, as programs do. Otherwise the requests are prepared bytes, and
	// only the length of the reply is parsed, so that we measure the nodes and not the client.
	library bool
}

// phase is how long a kind of load runs before the next kind runs, and rounds is how often each kind runs. They take
// turns because the speed of the machine drifts, and all kinds must run under the same conditions. With -short each kind
// runs once, which only shows that the benchmarks work.
const phase = 500 * time.Millisecond

func rounds() int {
	if testing.Short() {
		return 1
	}
	return 3
}

// rate is the number of operations of a load per second, and per second of this process's processor time, which all
// nodes and clients share. A busy machine changes wall; processor shows what an operation costs.
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

// turn is one kind of load. run runs it for one phase.
type turn struct {
	name string
	run  func(b *testing.B) rate
}

// inTurns runs the turns in rounds and returns the medians of their rates.
func inTurns(b *testing.B, turns []turn) []rate {
	b.Helper()
	walls, processors := make([][]float64, len(turns)), make([][]float64, len(turns))
	for range rounds() {
		for i, t := range turns {
			r := t.run(b)
			walls[i], processors[i] = append(walls[i], r.wall), append(processors[i], r.processor)
		}
	}
	medians := make([]rate, len(turns))
	for i, t := range turns {
		slices.Sort(walls[i])
		slices.Sort(processors[i])
		medians[i] = rate{walls[i][rounds()/2], processors[i][rounds()/2]}
		b.Logf("%-40s %9.0f operations/s (%.0f … %.0f), %9.0f in a processor's second",
			t.name, medians[i].wall, walls[i][0], walls[i][rounds()-1], medians[i].processor)
	}
	return medians
}

// processor returns the processor time that this process has used.
func processor(b *testing.B) time.Duration {
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// drive has workers repeat work for one phase, and returns their rate together. work returns how many operations it made.
func drive(b *testing.B, workers int, work func(worker int) (operations int, err error)) rate {
	b.Helper()
	var done atomic.Int64
	var group sync.WaitGroup
	before, start := processor(b), time.Now()
	for i := range workers {
		group.Go(func() {
			for time.Since(start) < phase {
				operations, err := work(i)
				if err != nil {
					b.Error(err)
					return
				}
				done.Add(int64(operations))
			}
		})
	}
	group.Wait()
	return rate{float64(done.Load()) / time.Since(start).Seconds(), float64(done.Load()) / (processor(b) - before).Seconds()}
}

// run runs the load for one phase and returns its rates.
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
	method, path, body := l.request(c)
	if l.library {
		return l.throughLibrary(method, "http://"+address+path, body, end, done)
	}
	request := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s", method, path, address, l.head, len(body), body)
	replies := bufio.NewReaderSize(conn, 16<<10)
	for time.Now().Before(end) {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		if status, err := skipReply(replies); err != nil || status >= 300 {
			return fmt.Errorf("%s %s: status %d, %v", method, path, status, err)
		}
		done.Add(1)
	}
	return nil
}

// skipReply reads a reply with or without a Content-Length, and returns its status.
func skipReply(in *bufio.Reader) (status int, err error) {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if line = bytes.TrimSpace(line); first {
			status, err = strconv.Atoi(string(bytes.Fields(line)[1]))
		} else if len(line) == 0 {
			_, err = in.Discard(length)
			return status, err
		} else if name, value, _ := bytes.Cut(line, []byte(": ")); bytes.EqualFold(name, []byte("Content-Length")) {
			length, err = strconv.Atoi(string(value))
		} else if bytes.EqualFold(name, []byte("Transfer-Encoding")) {
			err = errors.New("a reply without its length")
		}
		if err != nil {
			return 0, err
		}
	}
}

// throughLibrary is a connection of net/http's client.
func (l *loader) throughLibrary(method, url, body string, end time.Time, done *atomic.Int64) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	for time.Now().Before(end) {
		request, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		reply, err := client.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, reply.Body)
		if err = errors.Join(err, reply.Body.Close()); err != nil || reply.StatusCode >= 300 {
			return fmt.Errorf("%s %s: %s, %v", method, url, reply.Status, err)
		}
		done.Add(1)
	}
	return nil
}
