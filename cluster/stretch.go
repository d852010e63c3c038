package cluster

import "time"

// patienceMax bounds how long a caller's command or read is held at any multiplier.
const patienceMax = 30 * time.Second

// stretch is the Raft multiplier, by which all time-outs between nodes grow: what is
// too short for an election on a slow network is too short for a question, too. 0
// counts as 1.
type stretch int

// of returns a time-out that is for multiplier 1, as this one has it.
func (s stretch) of(timeout time.Duration) time.Duration {
	return time.Duration(max(s, 1)) * timeout
}

// patience is of, for how long a caller waits.
func (s stretch) patience(timeout time.Duration) time.Duration {
	return min(s.of(timeout), patienceMax)
}
