// Package exit gives each failure of a subcommand its exit status, so that scripts can act on
// it: docs/cli.md has the table.
//
// The package is called by cmd/signalbox and the packages below it; main ends the process. It
// imports package client, whose failures it knows. All may run at once.
//
//   - exit.go: the statuses, Error, StatusOf
package exit
