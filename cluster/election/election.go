package election

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// askTimeout bounds the wait for the other voters' replies. A candidate waits for all replies, since a better
	// candidate may be among them.
	askTimeout = 60 * time.Millisecond
	// giveWay is how long a candidate waits for a better candidate to campaign.
	giveWay = 60 * time.Millisecond
	// campaignTime is how long this node waits for the result of a campaign before it tries again.
	campaignTime = 300 * time.Millisecond
	// settle is how long a node without a leader waits, at multiplier 1, after it last voted or its leader last
	// changed, since an election may be under way.
	settle = 100 * time.Millisecond
	// promiseLasts is how long a voter that has agreed to a candidate refuses worse candidates.
	promiseLasts = 150 * time.Millisecond
	// turnLasts is how long the best candidate, if no majority agrees with it, keeps worse candidates waiting. A
	// candidate that has campaigned keeps them waiting no longer.
	turnLasts = 400 * time.Millisecond
	// suspicion is how long after the end of a stream this node suspects that the process has ended.
	suspicion = 2 * time.Second
	// contactLasts is how long after a heartbeat a leader counts as alive. Heartbeats come more often.
	contactLasts = 400 * time.Millisecond
	// firstConfiguration is the index of the entry with which a cluster is bootstrapped.
	firstConfiguration = 1
	// firstRetry and lastRetry are the pauses of a node without a leader between its questions.
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
)

// Raft is the part of Raft that an election needs. No method blocks.
type Raft interface {
	State() raft.RaftState
	CurrentTerm() uint64
	LastContact() time.Time
	LeaderWithID() (raft.ServerAddress, raft.ServerID)
	GetConfiguration() raft.ConfigurationFuture
}

// Candidate is the node that may campaign. All methods are safe for concurrent use.
type Candidate interface {
	// Able returns why this node must not lead now, or nil. It does not block.
	Able() error
	// LastEntry returns the term and the index of the last entry in this node's log.
	LastEntry() (term, index uint64)
	// Ask sends a question to another voter and blocks for its reply.
	Ask(ctx context.Context, voter raft.Server, q Question) (Reply, error)
	// Identify dials the peer port of a member and returns the incarnation of the member's process, or the error of the
	// dial or the handshake.
	Identify(ctx context.Context, node string) (incarnation uint64, err error)
	// Campaign makes this node's Raft campaign, without pre-vote. It blocks for a moment.
	Campaign() error
}

// Question asks a voter whether it agrees that From campaigns.
type Question struct {
	From  string `json:"from"`
	Lost  Leader `json:"lost"` // that the candidate has found dead; zero: it knows no leader
	Term  uint64 `json:"term"` // of the candidate's last entry
	Index uint64 `json:"index"`
}

// Reply is a voter's reply to a question.
type Reply struct {
	Agrees bool `json:"agrees,omitempty"`
	Better bool `json:"better,omitempty"` // the voter is the better candidate, and campaigns itself
	Leads  bool `json:"leads,omitempty"`  // the voter is the leader, and lives
}

// Election finds reasons to campaign before Raft's time-outs. Make it with [New].
type Election struct {
	self      raft.ServerID
	raft      Raft
	candidate Candidate
	log       hclog.Logger
	times     wake.Stretch
	proofs    proofs
	news      wake.Signal

	mu       sync.Mutex
	suspects map[string]suspect // by node id
	changed  time.Time          // when a vote was last requested, or the leader changed; zero: never
	promised standing
	until    time.Time // when the promise ends
	turn     time.Time // the end of this node's turn as the best candidate; zero: no turn has begun
}

// suspect is a leader that may be dead: its Raft stream to this node has ended, or a candidate has found it dead.
type suspect struct {
	Leader
	at time.Time // when the suspicion began
}

// standing is what decides between candidates: the last entry of the log, then the lower node id.
type standing struct {
	term, index uint64
	node        string
}

// compare is positive if s is the better candidate.
func (s standing) compare(other standing) int {
	return cmp.Or(s.byLog(other), cmp.Compare(other.node, s.node))
}

func (s standing) byLog(other standing) int {
	return cmp.Or(cmp.Compare(s.term, other.term), cmp.Compare(s.index, other.index))
}

// New returns the election of a node whose Raft runs. It does not campaign before Run.
func New(self raft.ServerID, r Raft, candidate Candidate, times wake.Stretch, log hclog.Logger) *Election {
	return &Election{
		self: self, raft: r, candidate: candidate, times: times, log: log.Named("election"), news: wake.NewSignal(), suspects: map[string]suspect{},
		proofs: proofs{identify: candidate.Identify, dead: map[string]death{}},
	}
}

// StreamEnded records that a Raft stream from a process has ended, if the process leads. The caller must report this
// before this node's Raft reads a message of the member's next process, which may lead in a later term. It does not
// block.
func (e *Election) StreamEnded(process Process) {
	term := e.raft.CurrentTerm() // read first: if the leader changes now, its term is over
	if _, leader := e.raft.LeaderWithID(); string(leader) == process.Node {
		e.suspect(Leader{process, term})
	}
}

func (e *Election) suspect(leader Leader) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.suspects[leader.Node] = suspect{leader, time.Now()}
	e.news.Set()
}

// Changed records that Raft follows another leader, or that a candidate has requested this node's vote. It does not
// block.
func (e *Election) Changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changed = time.Now()
	e.news.Set()
}

// noElectionUnderWay reports whether no election seems to be under way.
func (e *Election) noElectionUnderWay() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed.IsZero() || time.Since(e.changed) >= e.times.Of(settle)
}

// Run campaigns when there is a reason to, until ctx ends.
func (e *Election) Run(ctx context.Context) {
	retry := firstRetry
	for ctx.Err() == nil {
		var pause <-chan time.Time
		news := e.news
		switch e.try(ctx) {
		case followed: // no pause: wait for news
			retry = firstRetry
			e.endTurn()
		case gaveWay:
			pause, news = time.After(e.times.Of(giveWay)), nil
		case campaigned:
			pause, news = time.After(e.times.Of(campaignTime)), nil
		case found:
			pause, retry = time.After(retry), min(2*retry, lastRetry)
		case unagreed:
			pause, retry = time.After(firstRetry), firstRetry
		}
		select {
		case <-news:
		case <-pause:
		case <-ctx.Done():
		}
	}
}

// outcome is the result of one search for a reason to campaign.
type outcome int

const (
	followed   outcome = iota // this node has a leader, or leads
	found                     // this node knows no leader, and no majority agrees
	unagreed                  // the leader is dead, and no majority has agreed: replies may have been late
	gaveWay                   // there is a better candidate
	campaigned                // this node has campaigned
)

// try asks the other voters if this node has no leader, and campaigns if enough of them agree.
func (e *Election) try(ctx context.Context) outcome {
	dead, isLost := e.lostLeader(ctx)
	if !isLost {
		return followed
	}
	servers := e.raft.GetConfiguration().Configuration().Servers
	if !e.mayCampaign(servers) || !e.stillLost(dead) {
		return found
	}
	standing := e.standing()
	agreed, better := e.ask(ctx, servers, Question{From: string(e.self), Lost: dead, Term: standing.term, Index: standing.index})
	switch {
	case better:
		return gaveWay
	case !agreed || !e.promiseSelf(standing, dead.Node) || !e.mayCampaign(servers) || !e.stillLost(dead):
		if e.takeTurn(e.times.Of(turnLasts)); dead != (Leader{}) {
			return unagreed
		}
		return found
	}
	e.takeTurn(0)
	e.log.Info("this node campaigns: a majority of the voters has no leader", "dead", dead.Node)
	if err := e.candidate.Campaign(); err != nil {
		e.log.Warn("this node's raft did not campaign", "error", err)
	}
	return campaigned
}

// mayCampaign reports whether this node has a vote, is able to lead, and does not campaign already.
func (e *Election) mayCampaign(servers []raft.Server) bool {
	return e.raft.State() == raft.Follower && votes(servers, e.self) && e.candidate.Able() == nil
}

// stillLost reports whether the result of lostLeader still holds: this node suspects the same leader or, if lost is
// zero, it knows no leader and no election seems to be under way.
func (e *Election) stillLost(lost Leader) bool {
	_, leader := e.raft.LeaderWithID()
	if leader == "" {
		return lost == Leader{} && e.noElectionUnderWay()
	}
	last, ok := e.suspectedLeader(string(leader))
	return ok && last == lost
}

// lostLeader reports whether this node has no leader: it knows no leader, or finds the leader's process dead and returns
// the leader.
func (e *Election) lostLeader(ctx context.Context) (dead Leader, isLost bool) {
	_, leader := e.raft.LeaderWithID()
	switch leader {
	case "":
		return Leader{}, e.raft.State() != raft.Leader
	case e.self:
		return Leader{}, false
	}
	last, ok := e.suspectedLeader(string(leader))
	return last, ok && e.proofs.isDead(ctx, last)
}

// suspectedLeader returns the leader of this node's term if it is the node and was suspected just now. A suspicion
// counts only in its term, because the member's next process may lead in a later term.
func (e *Election) suspectedLeader(node string) (Leader, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, ok := e.suspects[node]
	return last.Leader, ok && last.Term == e.raft.CurrentTerm() && time.Since(last.at) < e.times.Of(suspicion)
}

// ask asks all other voters, and reports whether a majority agrees, this node included, and whether a better candidate
// is among them. Before the first leader of a cluster all voters must agree: a voter that still forms the cluster would
// find the cluster alive, and come in as a member that has lost its folder.
func (e *Election) ask(ctx context.Context, servers []raft.Server, q Question) (agreed, better bool) {
	ctx, cancel := context.WithTimeout(ctx, e.times.Of(askTimeout))
	defer cancel()
	var targets []raft.Server
	voters := 0
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if s.ID != e.self && string(s.ID) != q.Lost.Node {
			targets = append(targets, s)
		}
	}
	replies := wake.AtOnce(targets, func(s raft.Server) Reply {
		reply, err := e.candidate.Ask(ctx, s, q)
		if err != nil {
			return Reply{}
		}
		return reply
	})
	agreeing := 1
	for _, r := range replies {
		if r.Leads {
			return false, false
		}
		better = better || r.Better
		if r.Agrees {
			agreeing++
		}
	}
	if q.Index <= firstConfiguration {
		return agreeing == voters, better
	}
	return agreeing > voters/2, better
}

// Judge replies to a candidate. It blocks for a second at most.
func (e *Election) Judge(ctx context.Context, q Question) Reply {
	if e.raft.State() == raft.Leader {
		return Reply{Leads: true}
	}
	if !e.alsoLost(ctx, q.Lost) {
		return Reply{}
	}
	candidate, self := standing{q.Term, q.Index, q.From}, e.standing()
	if candidate.compare(self) < 0 && !e.turnIsOver() && e.mayCampaign(e.raft.GetConfiguration().Configuration().Servers) {
		e.suspectToo(q.Lost)
		return Reply{Better: true}
	}
	return Reply{Agrees: candidate.byLog(self) >= 0 && e.promise(candidate, q.Lost.Node)}
}

// alsoLost reports whether this voter, like the candidate, has no leader: it knows no leader, or its stream from the
// leader has ended, or is silent, and its dial finds the process dead. Its stream may end a moment later than the
// candidate's stream. A term has one leader, which is one process. So in the term of the lost leader this node follows
// that process, and in another term it may follow the member's next process.
func (e *Election) alsoLost(ctx context.Context, lost Leader) bool {
	_, leader := e.raft.LeaderWithID()
	if leader == "" {
		return e.noElectionUnderWay()
	}
	for _, pause := range dialPauses {
		if string(leader) != lost.Node || e.raft.CurrentTerm() != lost.Term || pause > 0 && wake.Pause(ctx, pause) != nil {
			return false
		}
		last, ok := e.suspectedLeader(lost.Node)
		if ok && last == lost || time.Since(e.raft.LastContact()) > e.times.Of(contactLasts) {
			return e.proofs.isDead(ctx, lost)
		}
	}
	return false
}

// promiseSelf promises this node's agreement to its own campaign, unless it has promised it to another candidate.
func (e *Election) promiseSelf(self standing, lost string) bool {
	e.mu.Lock()
	free := e.promised.node == self.node || e.promised.node == lost || time.Now().After(e.until)
	e.mu.Unlock()
	return free && e.promise(self, lost)
}

// suspectToo makes this node campaign itself, because it may not have seen the end of its stream yet.
func (e *Election) suspectToo(lost Leader) {
	if lost != (Leader{}) {
		e.suspect(lost)
	}
	e.news.Set()
}

// takeTurn starts this node's turn as the best candidate, or shortens it.
func (e *Election) takeTurn(lasts time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if over := time.Now().Add(lasts); e.turn.IsZero() || over.Before(e.turn) {
		e.turn = over
	}
}

// endTurn forgets the turn, since this node has a leader.
func (e *Election) endTurn() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn = time.Time{}
}

// turnIsOver reports whether this node's turn is over and it has not become the leader.
func (e *Election) turnIsOver() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.turn.IsZero() && !time.Now().Before(e.turn)
}

// promise records that this node agrees to a candidate. It returns false if this node has lately agreed to a better
// candidate that is not the lost leader.
func (e *Election) promise(candidate standing, lost string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); now.After(e.until) || e.promised.node == lost || candidate.compare(e.promised) >= 0 {
		e.promised, e.until = candidate, now.Add(e.times.Of(promiseLasts))
		return true
	}
	return false
}

func (e *Election) standing() standing {
	term, index := e.candidate.LastEntry()
	return standing{term, index, string(e.self)}
}

// votes reports whether a node has a vote in a configuration.
func votes(servers []raft.Server, node raft.ServerID) bool {
	for _, s := range servers {
		if s.ID == node {
			return s.Suffrage == raft.Voter
		}
	}
	return false
}
