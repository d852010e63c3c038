package access

import "github.com/signalbox/signalbox/fsm"

// ParseText parses the text of a file and returns its identities.
func ParseText(text string) (found []*Identity, err error) {
	grants, err := parse(text)
	for _, g := range grants {
		found = append(found, g.identity)
	}
	return found, err
}

// NeedsOf returns the scope that a command needs.
func NeedsOf(c fsm.Command) Scope {
	scope, _ := needs(c)
	return scope
}

// WatchEvery is how often a file is looked at.
const WatchEvery = watchEvery
