package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// loader is one kind of load: a keep-alive connection to an address, on which
// it sends request i of connection c and waits for the answer.
type loader struct {
	name       string
	addresses  []string // connections take turns
	request    func(c, i int) (method, path, body string)
	operations int // in one request
}

// phase is how long one kind of load runs before the next takes its turn, and
// rounds is how many turns each has: the machine's speed drifts, and what is
// compared must have seen the same weather.
const (
	phase  = 2 * time.Second
	rounds = 5
)

// compare runs the loads in turns and answers, for each, the median of its
// operations a second over the rounds.
func compare(b *testing.B, connections int, loaders ...*loader) []float64 {
	b.Helper()
	rates := make([][]float64, len(loaders))
	for range rounds {
		for i, l := range loaders {
			rates[i] = append(rates[i], l.run(b, connections))
		}
	}
	medians := make([]float64, len(loaders))
	for i := range rates {
		slices.Sort(rates[i])
		medians[i] = rates[i][len(rates[i])/2]
		b.Logf("%-40s %9.0f operations/s (%.0f … %.0f)", loaders[i].name, medians[i], rates[i][0], rates[i][len(rates[i])-1])
	}
	return medians
}

// run loads for one phase and answers operations a second.
func (l *loader) run(b *testing.B, connections int) float64 {
	b.Helper()
	var done atomic.Int64
	var group sync.WaitGroup
	failures := make(chan error, connections)
	start := time.Now()
	for c := range connections {
		group.Go(func() {
			if err := l.connection(c, start.Add(phase), &done); err != nil {
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
	return float64(done.Load()*int64(l.operations)) / time.Since(start).Seconds()
}

func (l *loader) connection(c int, end time.Time, done *atomic.Int64) error {
	address := l.addresses[c%len(l.addresses)]
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for i := 0; time.Now().Before(end); i++ {
		method, path, body := l.request(c, i)
		if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", method, path, address, len(body), body); err != nil {
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
