// Package cli has what the subcommands share on the command line: flags and the sources of their values, the cluster
// that the flags name, the output, and the exit status of a failure.
//
// The command line overrides environment variables, and variables override the file of flags. For example, --addr
// overrides SIGNALBOX_ADDR. A flag that is set in neither way may come from a context: a named set of addresses and
// credentials for one cluster, in a file of the user.
//
// ClusterFlags.Client returns the configuration of package client. It reads all files first, so that it can report a
// mistake with the name of its flag before any request. There is no flag for the token itself, since every user of a
// machine could read it in the list of processes. The token comes from a file, or from the variable
// SIGNALBOX_API_TOKEN. The earlier variable SIGNALBOX_TOKEN still works, but a number in it is no token: "signalbox
// run" sets it to the fencing token for its command.
//
// Tables are for people and may change. The other two formats are for programs: JSON, with the members of the HTTP API,
// and names, one per line. On a terminal, text from clients is printed without control characters, since these could
// control the terminal.
//
// cmd/signalbox and the packages below it call the package. main prints errors and ends the process. The package sends
// no request, and knows no names of flags except --help, --version and the flags that it adds.
//
//   - settings.go: values of flags from variables and a file; variables whose names are mistyped
//   - cluster.go: the flags that name a cluster, and the client that they configure
//   - contexts.go: the file of contexts
//   - cells.go: the file of the cells
//   - advice.go: errors, and what to do about them
//   - exit.go: the exit statuses
//   - terminal.go: formats, tables, colours, questions
//   - size_unix.go: the size of a terminal
//   - size_other.go: the same for systems on which the size is not known
package cli
