// Package terraform is the dialect of the http backend of OpenTofu and Terraform: the state, and its lock.
// docs/dialects-small.md is its contract.
//
// For each address there is a document, the item terraform/ADDRESS. It holds the lock as the client sent it, and names
// the parts that make up the state. The parts are items below the document's name, in a folder for each write. Each
// change names the version of the document that it has read. So a state is written only while the lock is as the write
// needs it. Neither the document nor its parts have a holder or a deadline, since the backend renews no lock.
//
// cmd/signalbox opens it with New; package httpapi serves it. It imports exchange, cluster and fsm. It is safe for
// concurrent use.
//
// Files:
//   - terraform.go: New, and which of its five requests a request is
//   - lock.go: lock, unlock
//   - state.go: read, write and delete the state; its parts
//   - document.go: the document, read and changed
package terraform
