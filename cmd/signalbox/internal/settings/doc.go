// Package settings sets the flags of a subcommand from where they may be given beside the
// command line: environment variables, and a file of the flags' names.
//
// A flag on the command line wins over its variable, and that over the file. A flag that
// none of them gives keeps its default. Apply reads the first two, File the third.
// Mistyped finds variables that no flag reads, because their names are mistyped.
//
// The package is called by cmd/signalbox and cmd/signalbox/operate. It knows no flag by its
// name but --help and --version, which have no variables.
//
//   - settings.go: variables, the file, mistyped names
package settings
