// Package audit writes one line of JSON for each change that clients ask a node for.
//
// It guarantees:
//
//   - Write never blocks: lines wait in a buffer of bounded size. A line without room is
//     dropped and counted, and the file reports that before its next line.
//   - A line has no secret: no token, no idempotency key, no metadata, no address of a
//     callback.
//   - The address of a client is the address of its connection. A header is believed only from a
//     proxy that an operator has listed.
//   - A file is made for its owner alone, and only appended to. It can be renamed at any
//     time: Reopen makes a new one.
//
// The lines of a node are about the requests that it has replied to. They are not synced, so a power
// cut may lose the last lines. A line is written after the reply is known, not before the change.
// The package knows no command and no route: package exchange makes the records at the seam to the
// node. cmd/signalbox opens and closes the log. It imports no package of ours. All of it is safe for
// concurrent use.
//
// Files:
//   - log.go: Log: records, the buffer, the file, metrics
//   - request.go: the request that a line is about, the address of its client, proxies
package audit
