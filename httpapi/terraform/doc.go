// Package terraform is the dialect of the http backend of OpenTofu and Terraform: the state, and
// its lock. docs/dialects-small.md is its contract.
//
// The item terraform/ADDRESS is the document of an address: the lock as its client sent it, and
// which parts make up the state. Since one item has both, a state is written only while the lock is
// as the write needs it: each change names the version of the document that it has read. The
// parts are items below the document's name, in a folder for each write. Neither the document nor
// its parts have a holder or a deadline, since the backend renews no lock.
//
// cmd/signalbox opens it with New; package httpapi serves it. It imports exchange, cluster
// and fsm. It is safe for concurrent use.
//
// Files:
//   - terraform.go: New, and which of its five requests a request is
//   - lock.go: lock, unlock
//   - state.go: read, write and delete the state; its parts
//   - document.go: the document, read and changed
package terraform
