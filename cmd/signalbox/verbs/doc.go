// Package verbs is the subcommands for the terminal: each does one thing and ends. A
// verb is one file with a function that returns its cobra command, and one line in
// cmd/signalbox/main.go. It prints its result on the command's output; the caller
// prints its error and chooses the exit status.
//
// The servers' subcommands, and run, are in cmd/signalbox.
//
//   - backup.go: backup: fetches a backup into a file; what the verbs that call a cluster share.
//   - restore.go: restore: sends a backup to the node that leads.
//   - cert.go: cert ca, cert node, cert client
//   - inspect.go: inspect FILE|FOLDER
//   - recover.go: recover, a cluster of one folder
//   - token.go: token new
package verbs
