// Package verbs has the subcommands for the terminal that do one thing and end. Most of them call a running cluster:
// they show and change semaphores, sessions, items and members. The others work on files: backups, certificates,
// tokens, the folder of a node that does not run.
//
// A verb for a running cluster is a value of type verb: its words, its flags, and its function, which calls package
// client. It prints a table, JSON or names: see package cli. A verb whose effect can't be undone asks first. A verb for
// files is a function that returns a cobra command. Commands returns all verbs.
//
// The exit statuses of failures are those in package cli: 2 for wrong flags, 3 for permits that are not free, 4 for a
// session that is over, 5 for a refusal, 6 if no node can be reached, 7 if a part of the cluster is down, and 1 for the
// rest.
//
// The package is called by cmd/signalbox, which has the subcommands for servers, and run. No verb keeps a lease alive.
//
//   - verb.go: Commands; what the verbs on a cluster share
//   - complete.go: names of semaphores and sessions, with which a shell completes arguments
//   - lists.go: --limit, lists of holders and waiters in pages
//   - semaphores.go: ls, show, create, resize, rm, up, down
//   - settings.go: set; the flags of the settings that create takes too
//   - groups.go: groups; the flags of requests in a group
//   - returns.go: lost, free, settle; permits that come back later, and slots, for people
//   - sessions.go: sessions, acquire, renew, release, revoke, end
//   - why.go: why a request waits
//   - live.go: watch, events, top
//   - items.go: item, and below it ls, get, put, rm
//   - members.go: members, leader, level; what is wrong with a cluster
//   - status.go: status
//   - backup.go: backup: fetches a backup into a file
//   - restore.go: restore: sends a backup to the leader
//   - cert.go: cert ca, cert node, cert client
//   - inspect.go: inspect FILE|FOLDER
//   - recover.go: recover, which makes a cluster from one folder
//   - token.go: token new
package verbs
