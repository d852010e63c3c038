// Package target is the flags by which subcommands find a cluster and identify themselves
// to it: the addresses, the token, the authorities.
//
// Flags.Client gives the configuration of package client, for semaphores. Flags.Service
// gives an http.Client with the same credentials, for the other routes of the API. Both
// read the files, so that a mistake is reported, by the name of its flag, before any
// request. Explain adds to an error what to do next.
//
// A flag that is given neither on the command line nor by its variable may come from a
// context: a name for the addresses and credentials of one cluster, in a file of the user's.
//
// There is no flag for the token itself, which every user of a machine could read in its
// list of processes: it comes from a file, or from the variable SIGNALBOX_API_TOKEN. An
// earlier name of that is SIGNALBOX_TOKEN, which "signalbox run" sets for its command to the
// fencing token: a number there is no token.
//
// The package is called by cmd/signalbox and its verbs. It sends no request itself.
//
//   - target.go: the flags, and what they configure
//   - contexts.go: the file of contexts
//   - advice.go: errors, and what to do about them
package target
