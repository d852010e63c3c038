// Package operator is the part of the Go client for operators of a cluster: the
// sessions of other processes, revocations, members and leadership, backups and their restore, and the stream
// of changes.
//
//	c, err := client.New(client.Config{Addresses: []string{"https://n1:8701"}, TokenFile: "admin.token"})
//	…
//	defer c.Close(ctx)
//	for s, err := range operator.New(c).ListSessions(ctx) {
//
// Calls are sent and fail as package client describes, with the further errors below. If
// the cluster has tokens, most calls need a token with the scope admin: otherwise they fail
// with client.ErrForbidden, and lists show only what the token may see.
//
// The package opens no session and holds no lease. It imports package client and its
// internal packages. cmd/signalbox/verbs and programs that operate a cluster call it.
//
//   - operator.go: New, the options of reads; members, leadership, the feature level
//   - backup.go: backups of the whole state, and their restore
//   - sessions.go: sessions of other processes, and how to end them; all holders and waiters
//   - leases.go: leases of other processes, and how to settle them and to take them away
//   - events.go: the stream of changes
package operator
