// Package cli is what the subcommands share on the command line: flags and where their values come
// from, the cluster that the flags name, the output, and the exit status of a failure.
//
// A flag on the command line wins over its environment variable, and the variable wins over the file of
// flags. For example --addr wins over SIGNALBOX_ADDR. A flag that is given neither way may come from a
// context: a name for the addresses and credentials of one cluster, in a file of the user's.
//
// ClusterFlags.Client gives the configuration of package client, and reads the files, so that a mistake is
// reported, by the name of its flag, before any request. There is no flag for the token itself, which every
// user of a machine could read in the list of processes: it comes from a file, or from the variable
// SIGNALBOX_API_TOKEN. An earlier name of that variable is SIGNALBOX_TOKEN, which "signalbox run" sets for
// its command to the fencing token: a number there is no token.
//
// A table is for people and may change. JSON has the members of the HTTP API, and names are
// one a line: both are for programs. On a terminal, text that came from clients is printed
// without its control characters, which could drive the terminal.
//
// The package is called by cmd/signalbox and the packages below it; main prints errors and ends the
// process. It sends no request itself, and knows no flag by its name but the flags that it adds,
// --help and --version.
//
//   - settings.go: values of flags from variables and a file; variables whose names are mistyped
//   - cluster.go: the flags that name a cluster, and the client that they configure
//   - contexts.go: the file of contexts
//   - cells.go: the file of the cells
//   - advice.go: errors, and what to do about them
//   - exit.go: the exit statuses
//   - terminal.go: formats, tables, colours, questions
//   - size_unix.go: the size of a terminal
//   - size_other.go: not known on other systems
package cli
