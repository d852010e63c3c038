package cluster

import "github.com/signalbox/signalbox/fsm"

// class orders the commands that wait for the log: a lower class goes first.
// Commands of one class keep their order. A caller that has sent two commands at
// the same time knows no order of them; one that waits for each reply has a
// single command under way. So classes change no order that a client can rely on.
type class uint8

const (
	classRenewal class = iota // keeps what a session has
	classRelease              // gives back
	classSingle               // any other request
	classListed               // a member of a list, whatever it does: see Node.DoMany
	classes
)

// classOf returns the class of a command that stands alone.
func classOf(op fsm.Op) class {
	switch op {
	case fsm.OpRenew:
		return classRenewal
	case fsm.OpRelease, fsm.OpEndSession, fsm.OpResizeLease, fsm.OpRevokeLease, fsm.OpUp, fsm.OpListRemove, fsm.OpNoticeDone:
		return classRelease
	}
	return classSingle
}

// load is what a command asks of the queue and of an entry.
type load struct {
	class  class
	weight int // as fsm.Weight counts
	bytes  int // encoded
}

// queueBytes bounds what the commands of one queue take, encoded.
const queueBytes = 64 << 20

// places bounds the commands that wait, and the memory that they take. Lists have
// half of it at most; an eighth is left to renewals and releases, which make room
// for others.
type places struct {
	commands, bytes int // the bounds
	used            [classes]struct{ commands, bytes int }
}

// take takes a place and reports whether there was one.
func (p *places) take(l load) bool {
	commands, bytes := 0, 0
	for _, used := range p.used {
		commands, bytes = commands+used.commands, bytes+used.bytes
	}
	free := commands < p.share(l.class, p.commands) && (commands == 0 || bytes+l.bytes <= p.share(l.class, p.bytes))
	own := &p.used[l.class]
	if l.class == classListed {
		free = free && own.commands < p.commands/2 && (own.commands == 0 || own.bytes+l.bytes <= p.bytes/2)
	}
	if free {
		own.commands, own.bytes = own.commands+1, own.bytes+l.bytes
	}
	return free
}

// share returns up to which part of a bound a class may fill the places.
func (p *places) share(c class, bound int) int {
	if c >= classSingle {
		return bound - bound/8
	}
	return bound
}

// leave gives a place back.
func (p *places) leave(l load) {
	own := &p.used[l.class]
	own.commands, own.bytes = own.commands-1, own.bytes-l.bytes
}

// queue holds the commands that wait for the log. Its proposer guards it.
type queue struct {
	places places
	lines  [classes]line
}

// line is what waits of one class, in its order.
type line struct {
	waiting       []proposal
	weight, bytes int // of all of them
	passed        int // entries in a row that had no room for the first one
}

// add puts a command at the end of its line and reports whether there was room.
func (q *queue) add(p proposal) bool {
	l := p.load()
	if !q.places.take(l) {
		return false
	}
	in := &q.lines[l.class]
	in.waiting = append(in.waiting, p)
	in.weight, in.bytes = in.weight+l.weight, in.bytes+l.bytes
	return true
}

// len returns how many commands wait.
func (q *queue) len() (commands int) {
	for i := range q.lines {
		commands += len(q.lines[i].waiting)
	}
	return commands
}

const (
	// shareWeight and shareBytes are what an entry keeps for each class that waits,
	// so that none is held up by the classes before it.
	shareWeight = fsm.EntryWeight / 8
	shareBytes  = fsm.EntryBytes / 8
)

// cut takes the next entry's commands: by class, within fsm.EntryWeight and
// fsm.EntryBytes, but at least one. A command that is larger than its class's share
// and so finds no room goes first into one of the next entries.
func (q *queue) cut() []proposal {
	var count [classes]int
	weight, bytes, total := fsm.EntryWeight, fsm.EntryBytes, 0
	take := func(c class, reservedWeight, reservedBytes int) bool {
		in := &q.lines[c]
		if count[c] == len(in.waiting) {
			return false
		}
		l := in.waiting[count[c]].load()
		if total > 0 && (l.weight > weight-reservedWeight || l.bytes > bytes-reservedBytes) {
			return false
		}
		weight, bytes, total = weight-l.weight, bytes-l.bytes, total+1
		count[c]++
		return true
	}
	if c, owed := q.owed(); owed {
		take(c, 0, 0)
	}
	for c := range classes {
		reservedWeight, reservedBytes := 0, 0
		for d := c + 1; d < classes; d++ {
			reservedWeight += min(q.lines[d].weight, shareWeight)
			reservedBytes += min(q.lines[d].bytes, shareBytes)
		}
		for take(c, reservedWeight, reservedBytes) {
		}
	}
	return q.remove(&count, total)
}

// owed returns the class that was passed over by most entries, if there is one.
func (q *queue) owed() (found class, owed bool) {
	most := 0
	for c := range q.lines {
		if passed := q.lines[c].passed; passed > most {
			most, found = passed, class(c)
		}
	}
	return found, most > 0
}

// remove takes the first commands out of each line.
func (q *queue) remove(count *[classes]int, total int) []proposal {
	taken := make([]proposal, 0, total)
	for c := range q.lines {
		in := &q.lines[c]
		for _, p := range in.waiting[:count[c]] {
			l := p.load()
			in.weight, in.bytes = in.weight-l.weight, in.bytes-l.bytes
			q.places.leave(l)
			taken = append(taken, p)
		}
		left := copy(in.waiting, in.waiting[count[c]:])
		clear(in.waiting[left:])
		in.waiting = in.waiting[:left]
		in.passed++
		if count[c] > 0 || left == 0 {
			in.passed = 0
		}
	}
	return taken
}

// empty takes all commands.
func (q *queue) empty() []proposal {
	var count [classes]int
	for c := range q.lines {
		count[c] = len(q.lines[c].waiting)
	}
	return q.remove(&count, q.len())
}
