package cluster

import (
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// refusalLogEvery is how often a refusal for the same reason is logged: a stranger
// may try again and again.
const refusalLogEvery = 5 * time.Second

// refusals counts the streams that this node has refused, and logs them. Safe for
// concurrent use.
type refusals struct {
	log   hclog.Logger
	count *prometheus.CounterVec // by reason

	mu     sync.Mutex
	logged map[refusal]time.Time // when one for that reason was logged last
	unsaid map[refusal]int       // how many were not, since then
}

func newRefusals(log hclog.Logger) *refusals {
	r := &refusals{
		log: log, logged: map[refusal]time.Time{}, unsaid: map[refusal]int{},
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "signalbox_peer_streams_refused_total",
			Help: "Streams between this node and others that were refused by this node, by reason.",
		}, []string{"reason"}),
	}
	for reason := range refusalNames { // at 0 from the start, so that a rise shows
		r.count.WithLabelValues(reason.String())
	}
	return r
}

// note counts a refusal of this node and logs it with both addresses.
func (r *refusals) note(reason refusal, detail string, conn net.Conn, kind StreamKind) {
	r.count.WithLabelValues(reason.String()).Inc()
	if reason == refusedKind { // ordinary while a node starts
		r.log.Debug("a stream was refused", "from", conn.RemoteAddr(), "kind", byte(kind))
		return
	}
	if unsaid, due := r.due(reason); due {
		r.log.Warn("a stream of a peer is refused", "reason", reason, "detail", detail,
			"local", conn.LocalAddr(), "remote", conn.RemoteAddr(), "kind", byte(kind), "more", unsaid)
	}
}

// noteRemote logs that the other node has refused a stream, which counts there.
func (r *refusals) noteRemote(reason refusal, detail string, conn net.Conn) {
	if unsaid, due := r.due(reason); due {
		r.log.Warn("a peer refuses this node's stream", "reason", reason, "detail", detail,
			"local", conn.LocalAddr(), "remote", conn.RemoteAddr(), "more", unsaid)
	}
}

// due reports whether a refusal for that reason is to be logged now, and how many
// were not since the last one.
func (r *refusals) due(reason refusal) (unsaid int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, is := r.logged[reason]; is && time.Since(last) < refusalLogEvery {
		r.unsaid[reason]++
		return 0, false
	}
	unsaid = r.unsaid[reason]
	r.logged[reason], r.unsaid[reason] = time.Now(), 0
	return unsaid, true
}
