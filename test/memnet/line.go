package memnet

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// lineBurst is how many bytes of a longer write arrive together on a line with a
	// bandwidth.
	lineBurst = 16 << 10
	// retransmission is the time after which a lost burst is sent again; each further
	// loss of it doubles that.
	retransmission = 200 * time.Millisecond
)

// line is what all streams of one direction between two hosts share.
type line struct {
	mu   sync.Mutex
	rate int64     // bytes a second; 0: no limit
	free time.Time // when it has sent everything it has taken
	loss float64   // the probability that a burst is lost
	rng  *rand.Rand
}

// Bandwidth limits the bytes that all connections together bring from one host to another from
// now on, in bytes a second. Zero ends it. Bytes go in the order in which the
// connections have sent them.
func (n *Network) Bandwidth(from, to string, rate int64) {
	n.changeLine(link{from, to}, func(l *line) { l.rate = rate })
}

// Loss loses bursts that are sent from one host to another from now on, with a
// probability below 1. As with TCP, they come later, and later bytes of the
// same connection wait for them. The same seed loses the same ones. Zero ends it.
func (n *Network) Loss(from, to string, probability float64, seed uint64) {
	n.changeLine(link{from, to}, func(l *line) {
		l.loss, l.rng = probability, rand.New(rand.NewPCG(seed, 0))
	})
}

func (n *Network) changeLine(at link, edit func(*line)) {
	n.change(func(c *condition) {
		if c.line == nil {
			c.line = &line{}
		}
		c.line.mu.Lock()
		defer c.line.mu.Unlock()
		edit(c.line)
	}, at)
}

// carry takes a burst of that many bytes and returns when it is through.
func (l *line) carry(size int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	if l.rate > 0 {
		if l.free.After(at) {
			at = l.free
		}
		at = at.Add(time.Duration(size) * time.Second / time.Duration(l.rate))
		l.free = at
	}
	if l.loss > 0 {
		for wait := retransmission; l.rng.Float64() < l.loss; wait *= 2 {
			at = at.Add(wait)
		}
	}
	return at
}
