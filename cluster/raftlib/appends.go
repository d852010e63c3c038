package raftlib

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// A message that fails within sendAgain is sent again after retryPause, once for each connection that the pool may
	// have, because all of them may have been reset.
	sendAgain  = 100 * time.Millisecond
	retryPause = 5 * time.Millisecond
	// heartbeatAfter is the shortest time, at multiplier 1, between a follower's last reply and the next heartbeat. The
	// heartbeat then waits for the next multiple of heartbeatEvery, so that an idle leader wakes five times a second
	// for all followers together. The sum of both and a round trip must stay below Tick: a follower campaigns after
	// Tick without a message.
	heartbeatAfter = 110 * time.Millisecond
	heartbeatEvery = 100 * time.Millisecond
	// appendAim is the longest that an append and its reply should take at multiplier 1. Heartbeats share the link with
	// appends, and must arrive within Tick.
	appendAim = Tick / 2
	// appendFirst is the first budget of each follower, in bytes; appendMin and appendMax bound all budgets.
	appendFirst = 1 << 20
	appendMin   = 16 << 10
	appendMax   = 8 << 20
	// entryOverhead is the approximate size of an entry on the wire without its data.
	entryOverhead = 64
)

// AppendEntriesPipeline always fails, so that Raft sends each append with AppendEntries: the messages of a pipeline
// would get no stamp and pass no fence.
func (t *Transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries sends entries or a heartbeat and blocks for the reply. It removes from args the entries that exceed the
// follower's budget (see pace). Raft reads the last entry in args as the follower's last entry, and sends the rest
// next.
//
// AppendEntries returns success only once this node's own disk has the entries, too, because Raft counts both copies at
// once (see Log). It delays the second error in a row until the follower replies to a heartbeat (see awaitReply).
func (t *Transport) AppendEntries(
	id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	if isHeartbeat(args) {
		return t.sendHeartbeat(id, target, args, resp)
	}
	t.followers.update(id, func(f *follower) { args.Entries = f.pace.fit(args.Entries) })
	// append repeats a fast failure, since Raft would wait for its commit timeout, or for the next entry.
	replied, err := t.append(t.NetworkTransport, id, target, args, resp, raftMaxPool)
	if !replied {
		t.announcer.CloseStreams() // an idle one to the follower's former process would keep its new process out for a while
	}
	hold := false
	t.followers.update(id, func(f *follower) { hold = f.attempts.noteResult(replied, err == nil && resp.Success) })
	if hold {
		t.awaitReply(t.closing, id, args.Term)
	}
	return err
}

// sendHeartbeat waits until a heartbeat is due, or until a read waits, and sends it.
func (t *Transport) sendHeartbeat(
	id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	var delay time.Duration
	t.followers.update(id, func(f *follower) { delay = f.heartbeats.delay(t.config.Stretch.Of(heartbeatAfter)) })
	sleepUnlessSignalled(t.closing, delay, t.config.Acks.Hurry())
	err := t.send(t.NetworkTransport, id, target, args, resp)
	if err == nil { // after an error the next heartbeat leaves at once: followers campaign after a few errors
		t.followers.noteHeartbeat(id)
	}
	return err
}

// append sends an append that is not a heartbeat, repeats it if it fails quickly, and records the follower's last
// entry. It also fails if the follower has replied, but this node's own disk does not have the entries in time.
func (t *Transport) append(
	via *raft.NetworkTransport, id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, again int,
) (replied bool, err error) {
	// The follower may have entries of an earlier leader after the last entry that this message compares. The commit
	// index that we send must not cover these entries, because the follower would take them for committed.
	last, lastTerm := lastCompared(args)
	args.LeaderCommitIndex = min(args.LeaderCommitIndex, last)
	t.followers.update(id, func(f *follower) { f.attempts.inFlight++ })
	err = t.repeat(again, func() error { return t.send(via, id, target, args, resp) })
	replied = err == nil
	if replied && resp.Success && len(args.Entries) > 0 {
		err = t.durable(last)
	}
	t.followers.noteAppend(id, target, args, lastTerm, err == nil && resp.Success)
	return replied, err
}

// send sends a message, and records its duration and acknowledgement. Any reply in the term of the request is an
// acknowledgement, even a request for older entries: it shows that the follower still follows this leader.
func (t *Transport) send(
	via *raft.NetworkTransport, id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	if err := t.fence(id, args); err != nil {
		return err
	}
	began := time.Now()
	sent := t.config.Acks.Now() // before the send, because a reply proves leadership only up to that moment
	err := via.AppendEntries(id, target, args, resp)
	t.followers.update(id, func(f *follower) { f.pace.noteMessage(args.Entries, time.Since(began), err) })
	if err == nil && resp.Term == args.Term {
		t.config.Acks.Record(id, args.Term, sent)
	}
	return err
}

// durable waits until this node's own disk has the entries up to index.
func (t *Transport) durable(index uint64) error {
	return t.config.Log.WaitDurable(index, t.config.Stretch.Of(raftTimeout))
}

// fence makes messages to followers fail while this node's log hangs. Raft would let such a leader lead for ever, since
// only its main loop is stuck (raft#503). Without messages, the followers elect a leader that can write.
func (t *Transport) fence(peer raft.ServerID, request any) error {
	if t.config.Stalled() {
		return errStalled
	}
	if t.config.Fault != nil {
		return t.config.Fault(peer, request)
	}
	return nil
}

// Run sends each follower the commit index, unless later entries bring it, until ctx ends. It sends one ordinary append
// without entries, after the last entry that the follower has acknowledged in this term. Raft would send the commit
// index only with the next entries or after its commit timeout. With a short commit timeout, an idle cluster would
// spend most of its processor time on that; with a long one, the followers' machines would be behind.
func (t *Transport) Run(ctx context.Context, source AppendSource) {
	t.source.Store(&source)
	for wake.Until(ctx, t.followers.acknowledged) == nil {
		t.followers.mark()
		hurry := t.config.Acks.Hurry() // before the pause, during which a read may come and go
		if wake.Pause(ctx, readQuiet) != nil {
			return
		}
		if sleepUnlessSignalled(ctx, commitQuiet-readQuiet, hurry) {
			t.followers.mark() // the read may wait for later entries
		}
		// In this order: a later leader may have committed another entry at that index.
		commit := source.CommitIndex()
		term := source.CurrentTerm()
		for id, a := range t.followers.needingCommit(term, commit) {
			go func() { // a follower that does not reply must not delay the others
				_, _ = t.append(t.announcer, id, a.target, &a.next, &raft.AppendEntriesResponse{}, 1)
			}()
		}
	}
}

// sleepUnlessSignalled blocks for a time, or until signal is set or closed, or ctx ends. It reports whether signal was
// the reason. With a nil signal it returns true at once.
func sleepUnlessSignalled(ctx context.Context, length time.Duration, signal <-chan struct{}) (signalled bool) {
	if signal == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	return wake.Until(ctx, signal) == nil
}

// isHeartbeat reports whether a message is one of Raft's heartbeats, which compare no entry.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0
}

// lastCompared returns the index and the term of the last entry that an append compares.
func lastCompared(args *raft.AppendEntriesRequest) (index, term uint64) {
	if n := len(args.Entries); n > 0 {
		return args.Entries[n-1].Index, args.Entries[n-1].Term
	}
	return args.PrevLogEntry, args.PrevLogTerm
}

// followers has the record of each follower that this node has sent to, or was asked about. Safe for concurrent use.
type followers struct {
	aim          time.Duration                // for each pace
	acknowledged wake.Signal                  // a follower has acknowledged entries and may not know that they are committed
	replies      wake.Watchers[raft.ServerID] // to heartbeats

	mu   sync.Mutex
	byID map[raft.ServerID]*follower
}

// follower is what a leader has learned about one follower from its messages. followers.mu guards all parts.
type follower struct {
	pace         pace         // how many entries the next append takes
	attempts     attempts     // which errors are delayed
	heartbeats   heartbeats   // when the next heartbeat leaves
	announcement announcement // the append that tells the follower the commit index
}

func newFollowers(aim time.Duration) *followers {
	return &followers{aim: aim, acknowledged: wake.NewSignal(), byID: map[raft.ServerID]*follower{}}
}

// update calls change with the record of a follower, under the lock. It makes the record if there is no record yet.
func (f *followers) update(id raft.ServerID, change func(*follower)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byID[id] == nil {
		f.byID[id] = &follower{pace: pace{aim: f.aim, budget: appendFirst}}
	}
	change(f.byID[id])
}

// noteAppend records the result of an append. lastTerm is the term of its last entry; args has the commit index that
// was sent.
func (f *followers) noteAppend(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, lastTerm uint64, success bool) {
	f.update(id, func(to *follower) {
		to.attempts.inFlight--
		if !success || args.Term < to.announcement.next.Term {
			return
		}
		to.attempts.succeeded++
		to.heartbeats.lastReply = time.Now()
		if to.announcement.noteSuccess(target, args, lastTerm) {
			f.acknowledged.Set()
		}
	})
}

// noteHeartbeat records the reply to a heartbeat. The reply may be in another term.
func (f *followers) noteHeartbeat(id raft.ServerID) {
	f.replies.WakeIf(func(watched raft.ServerID) bool { return watched == id })
	f.update(id, func(to *follower) { to.heartbeats.lastReply = time.Now() })
}

// attemptsTo returns the present state of the appends to a follower.
func (f *followers) attemptsTo(id raft.ServerID) (now attempts) {
	f.update(id, func(to *follower) { now = to.attempts })
	return now
}

// mark records which entries each follower has acknowledged by now. needingCommit does not announce later entries.
func (f *followers) mark() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, to := range f.byID {
		to.announcement.mark()
	}
}

// needingCommit returns the announcements that are due, each with its commit index. It skips followers to which an
// append is in flight, or which did not reply to Raft's last append. Their next success sets acknowledged, and so does
// the next success for entries after the mark.
func (f *followers) needingCommit(term, commit uint64) map[raft.ServerID]announcement {
	f.mu.Lock()
	defer f.mu.Unlock()
	due := map[raft.ServerID]announcement{}
	for id, to := range f.byID {
		if to.attempts.inFlight > 0 || to.attempts.silent || !to.announcement.isDue(term, commit) {
			continue
		}
		a := to.announcement
		a.next.LeaderCommitIndex = min(commit, a.next.PrevLogEntry)
		due[id] = a
	}
	return due
}

// pace bounds the bytes of entries in an append. Raft bounds only the number of entries, and on a slow link too many
// bytes never arrive within the time-out.
type pace struct {
	aim    time.Duration
	budget int
	// least is how long the fastest message has taken, with its reply; 0 before the first reply. A smaller budget
	// cannot make an append faster than that.
	least time.Duration
}

// fit returns as many of the first entries as the budget allows, at least one.
func (p *pace) fit(entries []*raft.Log) []*raft.Log {
	total := 0
	for i, entry := range entries {
		total += entrySize(entry)
		if i > 0 && total > p.budget {
			return entries[:i]
		}
	}
	return entries
}

// noteMessage adapts the budget to the duration of an append or a heartbeat, minus the duration of the fastest message:
//   - After a failure, the budget is half of the bytes that failed.
//   - After an append that took longer than the aim, the budget is as many bytes as would have taken just that long.
//   - An append that used most of the budget within half of the aim doubles it.
func (p *pace) noteMessage(entries []*raft.Log, took time.Duration, err error) {
	total := 0
	for _, entry := range entries {
		total += entrySize(entry)
	}
	if err == nil && (p.least == 0 || took < p.least) {
		p.least = took
	}
	took -= p.least
	if total < appendMin && (err != nil || took > p.aim) { // too few bytes to be the cause
		return
	}
	switch {
	case err != nil:
		p.budget = min(p.budget, total) / 2
	case took > p.aim:
		p.budget = min(p.budget, int(float64(total)*float64(p.aim)/float64(took)))
	case took < p.aim/2 && total > p.budget/2:
		p.budget *= 2
	}
	p.budget = min(max(p.budget, appendMin), appendMax)
}

func entrySize(entry *raft.Log) int { return len(entry.Data) + len(entry.Extensions) + entryOverhead }

// attempts counts the appends to a follower, and decides which errors of Raft's own appends are delayed.
type attempts struct {
	inFlight  int
	succeeded int
	silent    bool // Raft's last append had no reply
	failing   bool // Raft's last append did not succeed: Raft tries again, and may pause before that
}

// noteResult records the result of one of Raft's appends, and reports whether its error is to be delayed: from the
// second append without a reply on. The first such error is often just a connection that was reset.
func (a *attempts) noteResult(replied, success bool) (hold bool) {
	hold = a.silent && !replied
	a.silent, a.failing = !replied, !success
	return hold
}

// heartbeats spaces the heartbeats: a follower that has just replied needs no heartbeat.
type heartbeats struct {
	lastReply time.Time // to a heartbeat, or a success
}

// delay returns how long a heartbeat waits: until after has passed since the last reply, and then until the moment at
// which the heartbeats to all followers leave.
func (h *heartbeats) delay(after time.Duration) time.Duration {
	if after -= time.Since(h.lastReply); after > 0 {
		return wake.NextAfter(after, heartbeatEvery)
	}
	return 0
}

// announcement is the append without entries that tells a follower the commit index.
type announcement struct {
	target      raft.ServerAddress
	next        raft.AppendEntriesRequest // behind the last entry that the follower has acknowledged in its term
	sentCommit  uint64                    // the commit index that was sent to the follower, in the term of next
	ackedAtMark uint64                    // the last acknowledged entry at the time of mark
}

// noteSuccess records a successful append, and reports whether the follower has entries that it does not know to be
// committed.
func (a *announcement) noteSuccess(target raft.ServerAddress, args *raft.AppendEntriesRequest, lastTerm uint64) (uninformed bool) {
	if args.Term > a.next.Term {
		a.sentCommit = 0
		a.next = raft.AppendEntriesRequest{RPCHeader: args.RPCHeader, Term: args.Term}
	}
	a.target, a.sentCommit = target, max(a.sentCommit, args.LeaderCommitIndex)
	if last, _ := lastCompared(args); last > a.next.PrevLogEntry {
		a.next.PrevLogEntry, a.next.PrevLogTerm = last, lastTerm
	}
	return a.sentCommit < a.next.PrevLogEntry
}

func (a *announcement) mark() { a.ackedAtMark = a.next.PrevLogEntry }

// isDue reports whether the follower has acknowledged committed entries in the term, up to the mark, without knowing
// that they are committed. Later entries are left out, because the next append may still bring the commit index for
// them.
func (a *announcement) isDue(term, commit uint64) bool {
	return a.next.Term == term && a.sentCommit < min(commit, a.next.PrevLogEntry, a.ackedAtMark)
}

// Stamp is a moment on an [AckClock]. It is a counter and not a time: no two stamps are equal. On a coarse clock, a
// send and a later read could have the same time. Stamps of different clocks cannot be compared.
type Stamp uint64

// AckClock confirms a leader by when a message was sent, not by when its reply came as Raft does. For each peer it
// records when this node sent the last message that the peer has acknowledged to it as the leader of a term. Wait and
// EndTerm are in rounds.go. All methods are safe for concurrent use.
type AckClock struct {
	mu      sync.Mutex
	now     Stamp
	acks    map[raft.ServerID]ack
	over    uint64 // the terms up to this one are over
	changed wake.Bell
	waits   int // calls of Wait that are under way
	hurried wake.Bell
}

// ack says that a peer has acknowledged, in a term, a message that was sent at a moment.
type ack struct {
	term uint64
	sent Stamp
}

// NewAckClock returns a clock without acknowledgements.
func NewAckClock() *AckClock {
	return &AckClock{acks: map[raft.ServerID]ack{}}
}

// Now returns a stamp later than all earlier stamps.
func (c *AckClock) Now() Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	return c.now
}

// Record notes that a peer has acknowledged, in a term, a message that was sent at that stamp. Replies may be recorded
// in any order.
func (c *AckClock) Record(peer raft.ServerID, term uint64, sent Stamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.acks[peer]
	if term < last.term || (term == last.term && sent <= last.sent) {
		return
	}
	c.acks[peer] = ack{term, sent}
	c.changed.Ring()
}

// Hurry returns a channel that the next Wait closes, or nil while a Wait is under way.
func (c *AckClock) Hurry() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits > 0 {
		return nil
	}
	return c.hurried.Next()
}
