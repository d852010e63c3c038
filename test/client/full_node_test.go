package client_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

// full is the refusal of a node that has reached its own limit, or the cluster's.
func full(rule string) fault {
	return fault{status: http.StatusTooManyRequests, code: "limit-reached", rule: rule, header: http.Header{"Retry-After": {"1"}}}
}

// A node that has as many connections, bodies or replies as it takes costs no lease
// and fails no call while another one has room.
func TestFullNodeIsPassedOver(t *testing.T) {
	for _, rule := range []string{"connections", "body-memory", "reply-memory", "watchers"} {
		t.Run(rule, func(t *testing.T) {
			virtually(t, 3, func(b *bed) {
				b.put("db", 2)
				s := b.session(9 * time.Second)
				held, err := s.Acquire(b.ctx, "db")
				b.ok(err)
				b.net.follow(func(s sent, _ int) fault {
					if s.host != "n3:8701" {
						return full(rule)
					}
					return fault{}
				})
				_, err = b.c.Acquire(b.within(time.Second), "db")
				b.ok(err)
				time.Sleep(time.Minute) // virtual
				if err := held.Err(); err != nil {
					b.Errorf("the lease is over: %v", err)
				}
			})
		})
	}
}

// Where all nodes are full, each is asked once and the refusal is returned. A limit of
// the cluster is the same at every node: one is asked.
func TestLimitsThatEndACall(t *testing.T) {
	for rule, requests := range map[string]int{"connections": 3, "semaphores": 1} {
		t.Run(rule, func(t *testing.T) {
			virtually(t, 3, func(b *bed) {
				b.net.follow(always(full(rule)))
				_, err := b.c.Up(b.ctx, "db", 1)
				b.is(err, client.ErrLimitReached)
				b.isNot(err, client.ErrOutcomeUnknown)
				if got := len(b.net.requests()); got != requests {
					b.Errorf("%d requests were sent, not %d", got, requests)
				}
			})
		})
	}
}
