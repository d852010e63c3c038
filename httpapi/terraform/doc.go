// Package terraform is the dialect of the state locks of OpenTofu and Terraform, as their
// http backend asks for them. docs/dialects-small.md is its contract. The state itself stays
// where the backend's address leads.
//
// A lock is the item of its name. Its value is what the client sent to take the lock: who
// holds it, since when, and why. It has no holder and no end in time, as the backend's locks
// have none.
//
// cmd/signalbox opens it with New; package httpapi serves it. It imports exchange, cluster
// and fsm. It is safe for concurrent use.
//
// Files:
//   - terraform.go: New, the two routes, and their replies
package terraform
