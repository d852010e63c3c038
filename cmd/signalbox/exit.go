package main

import "errors"

// exit is an error that ends the program with a status of its own. Without an err
// there is nothing to tell.
type exit struct {
	status int
	err    error
}

// Error is what is told in one line.
func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap is the reason.
func (e *exit) Unwrap() error { return e.err }

// statusOf is the exit status that an error asks for, 1 unless it says another.
func statusOf(err error) int {
	var own *exit
	if errors.As(err, &own) {
		return own.status
	}
	return 1
}
