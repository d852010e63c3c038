package lead

import "github.com/signalbox/signalbox/fsm"

// Class orders the commands that wait for the log: a lower class goes first. Commands of one class keep their order.
// Classes change no order that a client can rely on: a client that sends two commands at once cannot know their order,
// and a client that waits for each reply has only one command under way.
type Class uint8

const (
	ClassRenewal Class = iota // keeps a session alive
	ClassRelease              // gives permits back
	ClassSingle               // any other request
	ClassListed               // any member of a list: see DoMany of cluster.Node
	classes
)

// ClassOf returns the class of a command that is not a member of a list.
func ClassOf(op fsm.Op) Class {
	switch op.Class() {
	case fsm.ClassRenewal:
		return ClassRenewal
	case fsm.ClassRelease:
		return ClassRelease
	}
	return ClassSingle
}

// Load is the space that a command takes in the queue and in an entry.
type Load struct {
	Class  Class
	Weight int // as fsm.Cost counts
	Bytes  int // encoded
}

// queueBytes bounds the size of all commands in one queue, encoded.
const queueBytes = 64 << 20

// Places bounds the number and the memory of the commands that wait. Lists may use half of it; an eighth is reserved
// for renewals and releases, which make room for other commands. The caller must lock it.
type Places struct {
	commands, bytes int // the bounds
	used            [classes]struct{ commands, bytes int }
}

// NewPlaces returns places for so many commands.
func NewPlaces(commands int) Places { return Places{commands: commands, bytes: queueBytes} }

// Take takes a place and reports whether there was one.
func (p *Places) Take(l Load) bool {
	commands, bytes := 0, 0
	for _, used := range p.used {
		commands, bytes = commands+used.commands, bytes+used.bytes
	}
	free := commands < p.share(l.Class, p.commands) && (commands == 0 || bytes+l.Bytes <= p.share(l.Class, p.bytes))
	class := &p.used[l.Class]
	if l.Class == ClassListed {
		free = free && class.commands < p.commands/2 && (class.commands == 0 || class.bytes+l.Bytes <= p.bytes/2)
	}
	if free {
		class.commands, class.bytes = class.commands+1, class.bytes+l.Bytes
	}
	return free
}

// share returns how much of a bound a class may use.
func (p *Places) share(c Class, bound int) int {
	if c >= ClassSingle {
		return bound - bound/8
	}
	return bound
}

// Leave returns a place.
func (p *Places) Leave(l Load) {
	class := &p.used[l.Class]
	class.commands, class.bytes = class.commands-1, class.bytes-l.Bytes
}

// queue holds the commands that wait for the log. Its proposer guards it.
type queue struct {
	places Places
	lines  [classes]line
}

// line holds the commands of one class that wait, in their order.
type line struct {
	waiting       []Proposal
	weight, bytes int // of all commands
	passed        int // consecutive entries that had no room for the first command
}

// add puts a command at the end of its line and reports whether there was room.
func (q *queue) add(p Proposal) bool {
	l := p.Load()
	if !q.places.Take(l) {
		return false
	}
	in := &q.lines[l.Class]
	in.waiting = append(in.waiting, p)
	in.weight, in.bytes = in.weight+l.Weight, in.bytes+l.Bytes
	return true
}

// len returns how many commands wait.
func (q *queue) len() (commands int) {
	for i := range q.lines {
		commands += len(q.lines[i].waiting)
	}
	return commands
}

// fills reports whether the waiting commands are enough for an entry.
func (q *queue) fills() bool {
	weight, bytes := 0, 0
	for i := range q.lines {
		weight, bytes = weight+q.lines[i].weight, bytes+q.lines[i].bytes
	}
	return weight >= fsm.EntryWeight || bytes >= fsm.EntryBytes
}

const (
	// shareWeight and shareBytes are reserved in an entry for each class that waits, so that lower classes do not block
	// it.
	shareWeight = fsm.EntryWeight / 8
	shareBytes  = fsm.EntryBytes / 8
)

// cut removes the commands for the next entry: by class, within fsm.EntryWeight and fsm.EntryBytes, but at least one. A
// command that is larger than the reserved share of its class may find no room; it then goes first into one of the next
// entries.
func (q *queue) cut() []Proposal {
	var count [classes]int
	weight, bytes, total := fsm.EntryWeight, fsm.EntryBytes, 0
	take := func(c Class, reservedWeight, reservedBytes int) bool {
		in := &q.lines[c]
		if count[c] == len(in.waiting) {
			return false
		}
		l := in.waiting[count[c]].Load()
		if total > 0 && (l.Weight > weight-reservedWeight || l.Bytes > bytes-reservedBytes) {
			return false
		}
		weight, bytes, total = weight-l.Weight, bytes-l.Bytes, total+1
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

// owed returns the class passed over by the most consecutive entries, if any: its first command is in the next entry.
func (q *queue) owed() (found Class, owed bool) {
	highest := 0
	for c := range q.lines {
		if passed := q.lines[c].passed; passed > highest {
			highest, found = passed, Class(c)
		}
	}
	return found, highest > 0
}

// remove removes the first commands of each line, and returns them.
func (q *queue) remove(count *[classes]int, total int) []Proposal {
	taken := make([]Proposal, 0, total)
	for c := range q.lines {
		in := &q.lines[c]
		for _, p := range in.waiting[:count[c]] {
			l := p.Load()
			in.weight, in.bytes = in.weight-l.Weight, in.bytes-l.Bytes
			q.places.Leave(l)
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

// empty removes all commands, and returns them.
func (q *queue) empty() []Proposal {
	var count [classes]int
	for c := range q.lines {
		count[c] = len(q.lines[c].waiting)
	}
	return q.remove(&count, q.len())
}
