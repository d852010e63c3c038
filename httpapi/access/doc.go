// Package access decides which client sent a request, and which commands and names it may
// use.
//
// It guarantees, for a node with a file of tokens:
//
//   - A request without a valid token or certificate has no identity.
//   - A command passes only if the scope of its identity allows the operation and if the
//     prefixes of the identity cover every semaphore that the command names. An operation
//     without a rule is refused.
//   - The refusal of a name depends on the name alone, so it does not show whether the
//     semaphore exists.
//   - A session is found by its owner, and by an admin who ends it.
//   - A dialect may derive the id of a session from names. No client chooses such an id, and an
//     identity with prefixes reaches the session through that dialect alone.
//   - Only hashes of tokens are stored. A hash is compared in constant time.
//   - If a changed file can't be read, the identities stay as they were. A token that the file no
//     longer has ends the requests under way with it.
//
// A certificate counts as verified, since certs.Source.ServerTLS refuses any other. The package
// knows no route and sends no reply. Package httpapi gives each request its identity; exchange
// asks it at the seam to the node, for every command of every API; the APIs ask it which names
// and sessions a reply may show. cmd/signalbox opens the file and watches it. It imports fsm. An
// Identity never changes; all of the package is safe for concurrent use.
//
// Files:
//   - identity.go: Identity and its scope, the names and sessions that it sees, its place
//     in a context
//   - commands.go: the scope and the names that each command needs, and its session
//   - file.go: the file of tokens, read strictly; a new token
//   - tokens.go: Tokens: who sent a request, the file read again, metrics
package access
