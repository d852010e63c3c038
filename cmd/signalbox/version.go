package main

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// stamped is set by the linker: -ldflags "-X main.stamped=v1.2.3".
var stamped string

// version is what this binary was built from: as stamped, else as the go command
// noted it (go install …@v1.2.3), else "devel".
func version() string {
	if stamped != "" {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// release is the version that this source is on the way to.
const release = "0.2.0"

var semantic = regexp.MustCompile(`^v?((?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*))(?:[-+].*)?$`)

// semanticVersion is the number of a version, without the commit that a build between
// two releases adds to it; release for a build that has no other number.
func semanticVersion(version string) string {
	found := semantic.FindStringSubmatch(version)
	if found == nil || found[1] == "0.0.0" { // a commit alone, or the go command's name for one
		return release
	}
	return found[1]
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(command.OutOrStdout(), "signalbox %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
