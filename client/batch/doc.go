// Package batch is the part of the Go client that submits many operations in one HTTP request.
// Each operation has its own outcome, and may fail while others succeed:
//
//	results, err := batch.Send(ctx, c,
//		batch.Operation{Op: "up", Semaphore: "jobs", Count: 3},
//		batch.Operation{Op: "release", Session: id, Semaphore: "db"})
//
// Package client already sends the calls of concurrent goroutines in such HTTP requests.
//
// The package keeps no state. It imports package client and its internal packages. Any
// program may call it.
//
//   - batch.go: operations, their results, Send
package batch
