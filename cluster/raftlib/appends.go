package raftlib

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// appendAgain is how fast an append has to fail to be tried again at once, for each
	// connection that is kept, and retryPause is before that.
	appendAgain = 100 * time.Millisecond
	retryPause  = 5 * time.Millisecond
	// holdCheck is how often a failure that is held is looked at: it is of use only while
	// this node leads and has the follower for a member.
	holdCheck = time.Second
	// reachWait is for how long Reaches waits for an append that succeeds.
	reachWait = time.Second
	// commitQuiet is how long after a success Run looks whether later entries have brought
	// the follower its commit index by then, also those of a lone client. A read ends that
	// wait, but not before readQuiet.
	commitQuiet = 3 * time.Millisecond
	readQuiet   = time.Millisecond
	// heartbeatAfter is for how long after the last reply a heartbeat is held, at
	// multiplier 1, and from then on until the next multiple of heartbeatEvery: to all followers
	// at the same moment, five times a second at multiplier 1 while nothing else is sent. A follower
	// waits for the sum of both and a round trip at most. It campaigns after Tick without a message.
	heartbeatAfter = 110 * time.Millisecond
	heartbeatEvery = 100 * time.Millisecond
	// appendAim is how long an append and its reply should take at multiplier 1, at
	// most: heartbeats share the link with it, and must come within Tick.
	appendAim = Tick / 2
	// appendFirst is the first budget of each peer, in bytes.
	appendFirst = 1 << 20
	// appendMin and appendMax bound a budget.
	appendMin = 16 << 10
	appendMax = 8 << 20
	// entryOverhead is about what an entry costs on the wire beside its data.
	entryOverhead = 64
)

// AppendEntriesPipeline fails, whatever the configuration: the messages of a pipeline
// would get no stamp and pass no fence.
func (t *Transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries sends entries or a heartbeat and blocks for the reply. A reply in
// the term of the request is an acknowledgement, even one that asks for older
// entries: its sender follows this leader still. A success comes back only when this
// node's own disk has the entries, too: Raft counts both at once (see Log). From the second
// one in a row on, a failure comes back only once the follower is there again: see awaitReply.
//
// It leaves in args only those entries that it sends: see pace.fit. Raft takes the last
// of them for the last that the follower has, and goes on behind it.
func (t *Transport) AppendEntries(
	id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	if heartbeat(args) {
		rest(t.closing, t.commits.hold(id, t.config.Stretch.Of(heartbeatAfter)), t.config.Acks.Hurry())
		err := t.send(t.NetworkTransport, id, target, args, resp)
		if err == nil { // else the next one leaves at once: followers campaign after a few that fail
			t.commits.heard(id)
		}
		return err
	}
	args.Entries = t.paces.of(id).fit(args.Entries)
	// Raft tries again after its commit timeout, or with the next entry. Connections that were reset fail at once.
	replied, err := t.append(t.NetworkTransport, id, target, args, resp, raftMaxPool)
	if !replied {
		t.announcer.CloseStreams() // to its process before, an idle one would keep a restarted follower out for a while
	}
	if t.commits.tried(id, replied, err == nil && resp.Success) {
		t.awaitReply(t.closing, id, args.Term)
	}
	return err
}

// awaitReply holds a failure of entries or a snapshot back until the follower replies to a heartbeat, this node leads
// no more in the term, the follower is no member any more, or ctx ends. Raft pauses twice as long after each failure, up
// to 10 s: so long it would keep a follower waiting that is back.
func (t *Transport) awaitReply(ctx context.Context, id raft.ServerID, term uint64) {
	news, stop := t.commits.replies.Watch(id)
	defer stop()
	for ctx.Err() == nil && t.leads(term, id) && !rest(ctx, holdCheck, news) {
	}
}

// leads reports whether this node leads in the term, and has the follower for a member.
func (t *Transport) leads(term uint64, follower raft.ServerID) bool {
	source := t.source.Load()
	if source == nil || (*source).CurrentTerm() != term || (*source).State() != raft.Leader {
		return false
	}
	servers := (*source).GetConfiguration().Configuration().Servers
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == follower })
}

// Reaches reports whether Raft's last append to a follower succeeded. It waits up to a second for one that is under
// way, or that is still to succeed. A hand-over of leadership to a follower for which Raft waits can refuse all writes
// for as long.
func (t *Transport) Reaches(ctx context.Context, id raft.ServerID) bool {
	ctx, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	before := t.commits.follower(id)
	for now := before; now.behind || now.flying > 0 && now.arrived == before.arrived; now = t.commits.follower(id) {
		if wake.Pause(ctx, retryPause) != nil {
			return false
		}
	}
	return true
}

// append sends an append that is no heartbeat, again if that fails at once, and notes what the follower
// knows then. It also fails after a reply, if this node's own disk does not have the entries in time.
func (t *Transport) append(
	via *raft.NetworkTransport, id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, again int,
) (replied bool, err error) {
	// Else a follower could take an entry for committed that it has of an earlier leader,
	// behind those that this message compares.
	last, lastTerm := end(args)
	args.LeaderCommitIndex = min(args.LeaderCommitIndex, last)
	t.commits.begin(id)
	began := time.Now()
	err = t.send(via, id, target, args, resp)
	for ; err != nil && again > 0 && time.Since(began) < appendAgain && wake.Pause(t.closing, retryPause) == nil; again-- {
		err = t.send(via, id, target, args, resp)
	}
	replied = err == nil
	if replied && resp.Success && len(args.Entries) > 0 {
		err = t.durable(last)
	}
	t.commits.end(id, target, args, lastTerm, err == nil && resp.Success)
	return replied, err
}

// send sends a message and notes the reply.
func (t *Transport) send(
	via *raft.NetworkTransport, id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	if err := t.fence(id, args); err != nil {
		return err
	}
	began := time.Now()
	sent := t.config.Acks.Now() // before the send: a reply proves leadership up to that moment alone
	err := via.AppendEntries(id, target, args, resp)
	t.paces.of(id).note(args.Entries, time.Since(began), err, t.paces.aim)
	if err == nil && resp.Term == args.Term {
		t.config.Acks.Record(id, args.Term, sent)
	}
	return err
}

// durable waits for this node's own disk.
func (t *Transport) durable(index uint64) error {
	return t.config.Log.Durable(index, t.config.Stretch.Of(raftTimeout))
}

// fence fails messages that would keep followers with a leader whose own log hangs.
// Raft lets such a leader lead for ever, since only its main loop is stuck
// (raft#503); a silent one loses its followers to a leader that can write.
func (t *Transport) fence(peer raft.ServerID, request any) error {
	if t.config.Stalled() {
		return errStalled
	}
	if t.config.Fault != nil {
		return t.config.Fault(peer, request)
	}
	return nil
}

// commits knows what commit index each follower has been sent. Raft would send it with the next
// entries, or after its commit timeout: a short one costs an idle cluster most of its processor time,
// and after a long one the followers' machines would be behind for as long. Safe for concurrent use.
type commits struct {
	news    wake.Signal                  // a follower may not know the commit index
	replies wake.Watchers[raft.ServerID] // to heartbeats
	mu      sync.Mutex
	// peers are the followers that this node has sent to, or was asked about.
	peers map[raft.ServerID]*follower
}

// follower is what a leader knows of one.
type follower struct {
	flying  int       // appends to it under way
	arrived int       // appends to it that succeeded
	silent  bool      // the last one of Raft's had no reply
	behind  bool      // the last one of Raft's did not succeed: it tries again, and may pause before
	last    time.Time // when the last reply came
	target  raft.ServerAddress
	knows   uint64 // the commit index that it was sent, in the term of next
	marked  uint64 // see mark
	// next is an append without entries behind the last entry that the follower has acknowledged in its term.
	next raft.AppendEntriesRequest
}

// heartbeat reports whether a message is one. It compares no entry.
func heartbeat(args *raft.AppendEntriesRequest) bool {
	return len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0
}

// end returns index and term of the last entry that an append compares.
func end(args *raft.AppendEntriesRequest) (index, term uint64) {
	if n := len(args.Entries); n > 0 {
		return args.Entries[n-1].Index, args.Entries[n-1].Term
	}
	return args.PrevLogEntry, args.PrevLogTerm
}

// of returns what is known of a follower. The caller holds mu.
func (c *commits) of(id raft.ServerID) *follower {
	if c.peers[id] == nil {
		c.peers[id] = &follower{}
	}
	return c.peers[id]
}

// begin notes that an append leaves.
func (c *commits) begin(id raft.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(id).flying++
}

// end notes how an append came out, of which the last entry is of lastTerm. args has the commit index as it was sent.
func (c *commits) end(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, lastTerm uint64, success bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.of(id)
	f.flying--
	if !success || args.Term < f.next.Term {
		return
	}
	f.arrived++
	if args.Term > f.next.Term {
		f.knows = 0
		f.next = raft.AppendEntriesRequest{RPCHeader: args.RPCHeader, Term: args.Term}
	}
	f.target, f.last, f.knows = target, time.Now(), max(f.knows, args.LeaderCommitIndex)
	if last, _ := end(args); last > f.next.PrevLogEntry {
		f.next.PrevLogEntry, f.next.PrevLogTerm = last, lastTerm
	}
	if f.knows < f.next.PrevLogEntry {
		c.news.Set()
	}
}

// tried notes how an append of Raft's came out, and reports whether it had no reply, nor the one before.
func (c *commits) tried(id raft.ServerID, replied, success bool) (silentAgain bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.of(id)
	silentAgain = f.silent && !replied
	f.silent, f.behind = !replied, !success
	return silentAgain
}

// follower returns what is known of a follower now.
func (c *commits) follower(id raft.ServerID) follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.of(id)
}

// heard notes the reply to a heartbeat, maybe of another term.
func (c *commits) heard(id raft.ServerID) {
	c.replies.WakeIf(func(follower raft.ServerID) bool { return follower == id })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(id).last = time.Now()
}

// hold returns for how long a heartbeat to a follower is held: until so long after its last reply, and on
// until heartbeats leave.
func (c *commits) hold(id raft.ServerID, after time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if after -= time.Since(c.of(id).last); after > 0 {
		return wake.NextAfter(after, heartbeatEvery)
	}
	return 0
}

// rest blocks for a time, or until a value comes from hurry, hurry is closed or ctx has ended, and reports whether
// hurry was the reason. With hurry nil it does not block, and reports so.
func rest(ctx context.Context, length time.Duration, hurry <-chan struct{}) (hurried bool) {
	if hurry == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	return wake.Until(ctx, hurry) == nil
}

// mark notes what each follower has acknowledged by now: due is for those who don't know that it is committed.
func (c *commits) mark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.peers {
		f.marked = f.next.PrevLogEntry
	}
}

// due returns the followers that have acknowledged entries in the term, up to commit or beyond, and have not
// been sent that those up to the mark are committed, and what to send them. It leaves out those to which an
// append is under way, or Raft's last one had no reply: a success looks again, as it does for entries behind the mark.
func (c *commits) due(term, commit uint64) map[raft.ServerID]follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[raft.ServerID]follower{}
	for id, f := range c.peers {
		index := min(commit, f.next.PrevLogEntry)
		if f.next.Term == term && f.flying == 0 && !f.silent && f.knows < min(index, f.marked) {
			due := *f
			due.next.LeaderCommitIndex = index
			found[id] = due
		}
	}
	return found
}

// AppendSource is what appends depend on, of this node's Raft. No method blocks. All are safe for concurrent use.
type AppendSource interface {
	State() raft.RaftState
	CurrentTerm() uint64
	CommitIndex() uint64
	GetConfiguration() raft.ConfigurationFuture
}

// Run sends followers what is committed, if no entries follow that would tell them, until ctx ends: one ordinary
// append without entries, behind the last entry that the follower has acknowledged in this term.
func (t *Transport) Run(ctx context.Context, source AppendSource) {
	t.source.Store(&source)
	for wake.Until(ctx, t.commits.news) == nil {
		t.commits.mark()
		hurry := t.config.Acks.Hurry() // before the pause, during which a read may come and go
		if wake.Pause(ctx, readQuiet) != nil {
			return
		}
		if rest(ctx, commitQuiet-readQuiet, hurry) {
			t.commits.mark() // the read may wait for later entries
		}
		// In this order: what a later leader has committed may be another entry of that index.
		commit := source.CommitIndex()
		term := source.CurrentTerm()
		for id, f := range t.commits.due(term, commit) {
			go func() { // a follower that does not reply holds no other up
				_, _ = t.append(t.announcer, id, f.target, &f.next, &raft.AppendEntriesResponse{}, 1)
			}()
		}
	}
}

// paces knows how many bytes of entries an append to each peer may have: Raft bounds
// it by their number alone, and too many bytes for a slow link never arrive within
// the time-out. Safe for concurrent use.
type paces struct {
	aim   time.Duration
	mu    sync.Mutex
	peers map[raft.ServerID]*pace
}

// of returns the pace of a peer.
func (p *paces) of(peer raft.ServerID) *pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		p.peers = map[raft.ServerID]*pace{}
	}
	if p.peers[peer] == nil {
		p.peers[peer] = &pace{budget: appendFirst}
	}
	return p.peers[peer]
}

// pace is the budget of one peer, in bytes of entries an append. Safe for concurrent
// use.
type pace struct {
	mu     sync.Mutex
	budget int
	// least is how long the fastest message has taken, with its reply; 0: no
	// message has had a reply. No budget makes an append faster.
	least time.Duration
}

// fit returns the first entries that the budget has room for, at least one of them.
func (p *pace) fit(entries []*raft.Log) []*raft.Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for i, entry := range entries {
		total += entrySize(entry)
		if i > 0 && total > p.budget {
			return entries[:i]
		}
	}
	return entries
}

// note learns from an append or a heartbeat: how many bytes it had, and how much longer
// it took than the fastest message.
//   - After a failure, the budget is half of the bytes that failed.
//   - After an append that took longer than the aim, it is as many bytes as would have
//     taken just that long.
//   - An append that used most of the budget within half of the aim doubles it.
func (p *pace) note(entries []*raft.Log, took time.Duration, err error, aim time.Duration) {
	total := 0
	for _, entry := range entries {
		total += entrySize(entry)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && (p.least == 0 || took < p.least) {
		p.least = took
	}
	took -= p.least
	if total < appendMin && (err != nil || took > aim) { // its bytes are not the cause
		return
	}
	switch {
	case err != nil:
		p.budget = min(p.budget, total) / 2
	case took > aim:
		p.budget = min(p.budget, int(float64(total)*float64(aim)/float64(took)))
	case took < aim/2 && total > p.budget/2:
		p.budget *= 2
	}
	p.budget = min(max(p.budget, appendMin), appendMax)
}

func entrySize(entry *raft.Log) int { return len(entry.Data) + len(entry.Extensions) + entryOverhead }

// Stamp is a moment on an [AckClock]. It is a count and not a time: no two stamps are
// equal, so that a send and a later read never seem to be at the same moment, as on
// a coarse clock. Stamps of different clocks don't compare.
type Stamp uint64

// AckClock keeps, for each peer, the moment at which the last message was *sent* that
// the peer has acknowledged to this node as the leader of a term. Raft keeps the
// moment when the reply came, and so lets a reply to an older message confirm
// leadership. Wait and EndTerm are in rounds.go. All methods are safe for concurrent use.
type AckClock struct {
	mu      sync.Mutex
	now     Stamp
	acks    map[raft.ServerID]ack
	over    uint64 // the terms up to this one are over
	changed wake.Bell
	waits   int // calls of Wait
	hurried wake.Bell
}

// ack is a peer's acknowledgement, in a term, of a message sent at a moment.
type ack struct {
	term uint64
	sent Stamp
}

// NewAckClock returns a clock without acknowledgements.
func NewAckClock() *AckClock {
	return &AckClock{acks: map[raft.ServerID]ack{}}
}

// Now returns a moment later than every one before it.
func (c *AckClock) Now() Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	return c.now
}

// Record notes that a peer acknowledged, in a term, a message that was sent at that
// moment. Replies may be recorded in any order.
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

// Hurry returns a channel that the next Wait closes, or nil while one waits.
func (c *AckClock) Hurry() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits > 0 {
		return nil
	}
	return c.hurried.Next()
}
