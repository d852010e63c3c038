package verbs

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/internal/certs"
)

// newCert makes the subcommand for certificates. It works offline.
func newCert() *cobra.Command {
	command := &cobra.Command{
		Use:   "cert",
		Short: "Make the certificates of a cluster",
		Long: "Make the certificates of a cluster: the authority and one for each node (cert cluster, or cert ca and\n" +
			"cert node), then certificates of clients.\n\n" +
			"All files go to one folder. Its ca-key.pem signs for the whole cluster: keep it off the nodes. A node needs\n" +
			"ca.pem and its own two files. The keys are ECDSA P-256; an authority lasts ten years, what it issues one.",
		Args: cli.Arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return cli.UsageError(errors.New("cert needs one of: cluster, ca, node, client"))
		},
	}
	var o certOptions
	command.AddCommand(o.cluster(), o.authority(), o.node(), o.client())
	flags := command.PersistentFlags()
	flags.StringVar(&o.dir, "dir", "certs", "the folder of the files; made if it does not exist")
	flags.BoolVar(&o.overwrite, "overwrite", false, "replace files that exist")
	return command
}

type certOptions struct {
	dir       string
	overwrite bool
}

func (o *certOptions) cluster() *cobra.Command {
	var to string
	command := &cobra.Command{
		Use:   "cluster ID[=HOST,…] …",
		Short: "Make all that the nodes of a cluster need, as far as it is missing",
		Long: "Make the authority and a certificate for each node, as far as they are missing: the same command again\n" +
			"issues only certificates that have ended, end within 30 days, or lack a host. It prints the files that it has written.\n\n" +
			"ID is a node's --node-id, HOST a name or address by which clients reach it over HTTPS. The id and localhost\n" +
			"are added. The folder ID below --dir gets what belongs into that machine's /etc/signalbox: ca.pem, node.pem\n" +
			"and node-key.pem. With --to, what all nodes need is also copied there, without the authority's key.",
		Example: "  signalbox cert cluster n1=n1.example n2=n2.example n3=n3.example",
		Args:    cli.Arguments(1, math.MaxInt),
		RunE: func(command *cobra.Command, arguments []string) error {
			files, err := certs.MakeAuthority(o.dir, o.overwrite)
			if !errors.Is(err, fs.ErrExist) { // an existing authority is kept
				if err := printPair(command, files, err); err != nil {
					return err
				}
			}
			for _, argument := range arguments {
				if err := o.clusterNode(command, argument, to); err != nil {
					return err
				}
			}
			return nil
		},
	}
	command.Flags().StringVar(&to, "to", "", "copy ca.pem and the nodes' files to this folder")
	return command
}

// clusterNode issues the certificate of one node, unless a valid one exists, and copies it.
func (o *certOptions) clusterNode(command *cobra.Command, argument, to string) error {
	id, list, _ := strings.Cut(argument, "=")
	hosts := strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	if o.overwrite || !certs.NodeLasts(o.dir, id, hosts) {
		files, err := certs.MakeNode(o.dir, id, hosts, true)
		if err := printPair(command, files, err); err != nil {
			return err
		}
	}
	if err := certs.CopyNode(o.dir, filepath.Join(o.dir, id), id, "node"); err != nil || to == "" {
		return err
	}
	return certs.CopyNode(o.dir, to, id, "node-"+id)
}

func (o *certOptions) authority() *cobra.Command {
	return &cobra.Command{
		Use:   "ca",
		Short: "Make the certificate authority",
		Args:  cli.Arguments(0, 0),
		RunE: func(command *cobra.Command, _ []string) error {
			files, err := certs.MakeAuthority(o.dir, o.overwrite)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%w; with --overwrite all that it has issued becomes worthless: use another --dir", err)
			}
			return printPair(command, files, err)
		},
	}
}

func (o *certOptions) node() *cobra.Command {
	var hosts []string
	command := &cobra.Command{
		Use:   "node ID",
		Short: "Issue the certificate of a node",
		Long: "Issue the certificate of a node, for connections with the other nodes and for HTTPS. ID is its --node-id;\n" +
			"the names and addresses by which clients reach it are given by --host. localhost and the id are added.",
		Args: cli.Arguments(1, 1),
		RunE: func(command *cobra.Command, arguments []string) error {
			files, err := certs.MakeNode(o.dir, arguments[0], hosts, o.overwrite)
			return printPair(command, files, err)
		},
	}
	command.Flags().StringSliceVar(&hosts, "host", nil, "a host name or IP address of the node; may be repeated, or a list with commas")
	return command
}

func (o *certOptions) client() *cobra.Command {
	return &cobra.Command{
		Use:   "client NAME",
		Short: "Issue the certificate of a client",
		Args:  cli.Arguments(1, 1),
		RunE: func(command *cobra.Command, arguments []string) error {
			files, err := certs.MakeClient(o.dir, arguments[0], o.overwrite)
			return printPair(command, files, err)
		},
	}
}

func printPair(command *cobra.Command, files certs.Pair, err error) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w; --overwrite replaces it", err)
	case errors.As(err, new(certs.NameError)):
		return cli.UsageError(err)
	case err != nil:
		return err
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "%s\n%s\n", files.Cert, files.Key)
	return err
}
