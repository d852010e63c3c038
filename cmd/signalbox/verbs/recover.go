package verbs

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/cluster/offline"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/internal/certs"
)

type recovery struct {
	data, peers     string
	certs           certs.Config
	yes, upToDamage bool
}

// newRecover makes the subcommand that makes a cluster from one folder. It works offline, but asks the other nodes
// whether they are alive. parse parses a list of peers.
func newRecover(parse func(string) ([]probe.Peer, error)) *cobra.Command {
	var o recovery
	var config offline.Config
	command := &cobra.Command{
		Use:   "recover --data FOLDER --peers ID=HOST:PORT,…",
		Short: "Make a cluster of one data folder, when a majority of the others is lost for good",
		Long: "Make a cluster of one data folder, when a majority of the nodes has lost its disks for good. Run it once, on the\n" +
			"survivor whose last entry has the highest term and, among equals, the highest index: compare them by inspect.\n" +
			"Its node must not run, and no other member may reply. Changes after that entry are lost, if there were any.\n\n" +
			"The new cluster has a new id: it refuses nodes with folders of the old cluster until these are emptied.\n" +
			"Tokens go on above all that may have been given out. The old content of the folder is kept inside it.",
		Args: cli.Arguments(0, 0),
		PreRunE: func(*cobra.Command, []string) (err error) {
			config, err = o.config(parse)
			return err
		},
		RunE: func(command *cobra.Command, _ []string) error { return o.run(command, config) },
	}
	flags := command.Flags()
	flags.StringVar(&o.data, "data", "", "the folder of the survivor")
	flags.StringVar(&o.peers, "peers", "", "the members of the new cluster, as for serve: id=host:port,…; the survivor votes, the others once they have come in")
	flags.StringVar(&o.certs.Cert, "peer-cert", "", "PEM file with the survivor's certificate, if nodes have them: to ask them")
	flags.StringVar(&o.certs.Key, "peer-key", "", "PEM file with the key of --peer-cert")
	flags.StringVar(&o.certs.CA, "peer-ca", "", "PEM file with the authorities of the peers' certificates")
	flags.BoolVar(&o.upToDamage, "up-to-damage", false, "if the folder is damaged, use the sound entries before the first damage")
	flags.BoolVar(&o.yes, "yes", false, "don't ask")
	return command
}

// config returns what the flags say.
func (o *recovery) config(parse func(string) ([]probe.Peer, error)) (config offline.Config, err error) {
	if o.data == "" || o.peers == "" {
		return config, errors.New("recover needs --data and --peers")
	}
	config = offline.Config{Folder: o.data, UpToDamage: o.upToDamage, Network: peer.TCPNetwork{Stretch: 2}}
	if config.Peers, err = parse(o.peers); err != nil {
		return config, err
	}
	config.Security, err = o.security()
	return config, err
}

// run prepares the recovery, asks for confirmation, and carries it out.
func (o *recovery) run(command *cobra.Command, config offline.Config) (err error) {
	plan, err := offline.Prepare(command.Context(), config)
	switch {
	case errors.Is(err, offline.ErrAlive):
		return fmt.Errorf("%w. The folder was not changed. While a majority may come back, let it: no change is lost then. "+
			"Otherwise stop these nodes; if they have certificates, give --peer-cert, --peer-key and --peer-ca", err)
	case errors.Is(err, offline.ErrDamaged):
		return fmt.Errorf("%w. The folder was not changed. Recover another survivor, or use what is sound by --up-to-damage", err)
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	o.describe(command, plan)
	if !o.yes {
		if err := confirm(command, plan.Report.Folder.Node); err != nil {
			return err
		}
	}
	made, err := plan.Carry(command.Context())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "%s is cluster %s now, from index %d on.\nThe old content is in %s: remove it once all is well.\n"+
		"Start %s with serve as before, and then the others, each with an empty folder and the same --peers.\n",
		o.data, made.Cluster, made.Index, made.Kept, plan.Report.Folder.Node)
	return err
}

// security returns the TLS settings with which the other nodes are asked.
func (o *recovery) security() (peer.Security, error) {
	c := o.certs
	switch {
	case c.Cert == "" && c.Key == "" && c.CA == "":
		return peer.Security{}, nil
	case c.Cert == "" || c.Key == "" || c.CA == "":
		return peer.Security{}, errors.New("--peer-cert, --peer-key and --peer-ca belong together: give all of them, or leave all out")
	}
	source, err := certs.Open(c)
	if err != nil {
		return peer.Security{}, fmt.Errorf("--peer-cert: %w", err)
	}
	return peer.Security{TLS: source.NodeTLS(), PlainToo: true}, nil // with plain streams too, so that a node without TLS counts as alive
}

// describe prints what the recovery keeps and what may be lost.
func (o *recovery) describe(command *cobra.Command, plan *offline.Plan) {
	out := command.OutOrStdout()
	f := plan.Report.Folder
	index, term := plan.Last()
	state := plan.Report.Committed
	if plan.Report.Latest != nil {
		state = plan.Report.Latest
	}
	_, _ = fmt.Fprintf(out, "%s is the folder of node %s of cluster %s.\n", o.data, f.Node, f.Cluster)
	_, _ = fmt.Fprintf(out, "It has all entries up to index %d, of term %d: %d semaphores, %d sessions, %d leases, %d waiting requests.\n",
		index, term, state.Semaphores, state.Sessions, state.Leases, state.Waiting)
	_, _ = fmt.Fprintf(out, "Up to index %d they are known to be committed; later entries may have had no reply, and are kept.\n", plan.Report.CommittedIndex)
	_, _ = fmt.Fprintf(out, "Entries after index %d may have been acknowledged by the nodes that are lost: they are lost, too.\n", index)
	_, _ = fmt.Fprintln(out, "If another survivor has a last entry of a higher term, or of this term and a higher index, recover that survivor instead.")
	for _, damage := range plan.Report.Damage {
		_, _ = fmt.Fprintf(out, "Damage: %s\n", damage)
	}
	for _, other := range plan.Others {
		_, _ = fmt.Fprintf(out, "%s at %s: %s\n", other.ID, other.Address, other.Found)
	}
}

// confirm asks the user to type the node's id.
func confirm(command *cobra.Command, node string) error {
	_, _ = fmt.Fprintf(command.OutOrStdout(), "Type the node's id, %s, to recover: ", node)
	line, _ := bufio.NewReader(command.InOrStdin()).ReadString('\n') // an error means no confirmation
	if strings.TrimSpace(line) != node {
		return errors.New("not confirmed: the folder was not changed")
	}
	return nil
}
