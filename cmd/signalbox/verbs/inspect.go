package verbs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/cluster/offline"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// newInspect makes the subcommand that reports what a file contains. It works offline.
func newInspect() *cobra.Command {
	var asJSON bool
	var top int
	command := &cobra.Command{
		Use:   "inspect FILE|FOLDER",
		Short: "Report what a backup or a data folder holds, and check every checksum",
		Long: "Report what a backup, or the data folder of a node that does not run, holds: ids, indexes, members, counts, the\n" +
			"semaphores with most leases and waiting requests, and the hash of the state. Every checksum is checked, and the\n" +
			"state is read and checked too. No byte is changed. The exit status is 1 if something is damaged.",
		Args: cli.Arguments(1, 1),
		PreRunE: func(*cobra.Command, []string) error {
			if top < 0 {
				return fmt.Errorf("--top: %d is below 0", top)
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			report, err := offline.Inspect(arguments[0], top)
			if report == nil {
				return err
			}
			out := command.OutOrStdout()
			if asJSON {
				encoder := json.NewEncoder(out)
				encoder.SetIndent("", "  ")
				err = cmp.Or(encoder.Encode(report), err)
			} else {
				err = cmp.Or(printReport(out, report), err)
			}
			if err == nil && len(report.Damage) > 0 {
				err = fmt.Errorf("%s is damaged in %d places", arguments[0], len(report.Damage))
			}
			return err
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	command.Flags().IntVar(&top, "top", 5, "how many semaphores to list of each kind")
	return command
}

func printReport(out io.Writer, r *offline.Report) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if r.Folder != nil {
		printFolder(w, r)
	}
	if b := r.Backup; b != nil {
		row(w, "backup", "%s, made %s, %d bytes of state", r.Path, b.MadeAt.Format(time.RFC3339), b.Bytes)
		row(w, "cluster", "%s", cmp.Or(b.Cluster, "without an id"))
		row(w, "index", "%d, term %d, feature level %d", b.Index, b.Term, b.FeatureLevel)
	}
	if r.Committed != nil {
		printState(w, fmt.Sprintf("state at %d", r.CommittedIndex), r.Committed)
	}
	if r.Latest != nil {
		printState(w, fmt.Sprintf("state at %d, the end of the log", r.Latest.Index), r.Latest)
	}
	switch {
	case len(r.Damage) > 0:
		row(w, "damage", "%s", strings.Join(r.Damage, "\n\t"))
	case r.Committed == nil && r.Latest == nil && r.Folder != nil && r.Folder.NotInForce == 0:
		row(w, "state", "empty: this node has taken no entry yet")
		fallthrough
	default:
		row(w, "damage", "no damage: every checksum is right")
	}
	return w.Flush()
}

// row prints one line of a report.
func row(w io.Writer, name, format string, arguments ...any) {
	_, _ = fmt.Fprintf(w, name+"\t"+format+"\n", arguments...) // Flush returns the error
}

func printFolder(w io.Writer, r *offline.Report) {
	f := r.Folder
	row(w, "folder", "%s, format %d, id %s", r.Path, f.Format, f.ID)
	row(w, "node", "%s", f.Node)
	row(w, "cluster", "%s", cmp.Or(f.Cluster, "without an id"))
	if f.Restored {
		row(w, "restored", "yes: the first leader makes tokens jump")
	}
	if f.VoteTerm == 0 {
		row(w, "term", "%d, no vote", f.Term)
	} else {
		row(w, "term", "%d, last vote in term %d for %s", f.Term, f.VoteTerm, f.VoteCandidate)
	}
	if f.LastIndex == 0 {
		row(w, "log", "empty")
	} else {
		row(w, "log", "entries %d to %d, the last of term %d", f.FirstIndex, f.LastIndex, f.LastTerm)
	}
	for _, s := range f.Snapshots {
		row(w, "snapshot", "at %d, term %d, %d bytes", s.Index, s.Term, s.Bytes)
	}
	if f.NotInForce != 0 {
		row(w, "restore", "the state of a restore, at %d, is not in force: no entry follows it", f.NotInForce)
	}
	row(w, "committed", "at least up to %d", r.CommittedIndex)
	for _, m := range r.Members {
		member := m.ID + "=" + m.Address
		if !m.Voter {
			member += ", no vote"
		}
		if m.Folder != "" {
			member += ", admitted with folder " + m.Folder
		}
		row(w, "member", "%s", member)
	}
}

func printState(w io.Writer, title string, s *offline.State) {
	row(w, title, "term %d of %s, cluster time %v, feature level %d", s.Term, cmp.Or(s.Leader, "no leader"),
		time.Duration(s.ClusterTimeMS)*time.Millisecond, s.FeatureLevel)
	row(w, "  hash", "%s", s.Hash)
	row(w, "  holds", "%d semaphores, %d sessions, %d leases, %d waiting requests", s.Semaphores, s.Sessions, s.Leases, s.Waiting)
	for _, semaphore := range s.MostLeases {
		row(w, "  most leases", "%s: %d, which hold %d of %d permits", semaphore.Name, semaphore.Leases, semaphore.Held, semaphore.Permits)
	}
	for _, semaphore := range s.MostWaiting {
		row(w, "  most waiting", "%s: %d", semaphore.Name, semaphore.Waiting)
	}
}
