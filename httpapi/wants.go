package httpapi

import (
	"strconv"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// maxLeases is how many leases a restore may list: the most that a session may
// have by default; a configured limit below is the state machine's matter.
const maxLeases = 4096

// readWants reads [{"name":…,"count":…}, …], no name twice. count is 1 when
// absent.
func readWants(p *params, name string, v value) error {
	most, least := fsm.MaxMembers, 1
	if name == "leases" {
		most, least = maxLeases, 0
	}
	if !v.isArray() {
		return invalid(name, `This is not a list of {"name", "count"}.`)
	}
	p.wants = nil
	seen := map[string]bool{}
	for item := range v.items() {
		if len(p.wants) == most {
			return invalid(name, "This list has more than "+strconv.Itoa(most)+" members.")
		}
		want, err := readWant(name, item)
		if err != nil {
			return err
		}
		if seen[want.Semaphore] {
			return invalid(name, "This list names a semaphore twice.")
		}
		seen[want.Semaphore] = true
		p.wants = append(p.wants, want)
	}
	if len(p.wants) < least {
		return invalid(name, "This list is empty.")
	}
	return nil
}

func readWant(list string, v value) (fsm.Want, error) {
	p := params{count: 1}
	if !v.isObject() {
		return fsm.Want{}, invalid(list, `A member of this list is {"name", "count"}.`)
	}
	for raw, of := range v.members() {
		var err error
		switch name := string(raw); name {
		case "name":
			err = readSemaphore(&p, name, of)
		case "count":
			err = readCount(&p, name, of)
		default:
			err = invalid(name, "A member of this list does not take this member.")
		}
		if err != nil {
			return fsm.Want{}, err
		}
	}
	if p.semaphore == "" {
		return fsm.Want{}, invalid(list, "A member of this list has no name.")
	}
	return fsm.Want{Semaphore: p.semaphore, Count: p.count}, nil
}

func badWait(limitMS int64) error {
	most := (time.Duration(limitMS) * time.Millisecond).String()
	return invalid("wait", "A wait is "+durationForm+", from 0 to "+most+".")
}

const keyForm = "An idempotency key is 16 to 128 visible ASCII characters."

func validKey(key string) bool {
	if len(key) < 16 || len(key) > 128 {
		return false
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return false
		}
	}
	return true
}
