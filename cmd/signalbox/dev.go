package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/cluster"
)

const (
	maxDevNodes = 9
	// peerOffset is added to a node's HTTP port to get its peer port.
	peerOffset = 10
	// devReadyIn bounds the time until the nodes are ready.
	devReadyIn = 30 * time.Second
)

type devFlags struct {
	nodes, port int
	data        string
	logs        logging
	config      config // of each node, before start sets ports and names
}

func newDev() *cobra.Command {
	d := devFlags{config: defaultConfig()}
	var logger hclog.Logger
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster in this process, to try things out",
		Long: "Run a cluster in this process, to try things out, until Ctrl-C. The nodes are real: each has\n" +
			"its ports, its log and its files. Node n1 serves HTTP on --http-port, n2 on the next, and so on;\n" +
			fmt.Sprintf("peers use the ports %d above.", peerOffset),
		PreRunE: func(command *cobra.Command, _ []string) (err error) {
			if logger, err = d.logs.logger(command, &d.config); err == nil {
				err = d.check()
			}
			return err
		},
		RunE: func(command *cobra.Command, _ []string) error {
			return d.run(command.Context(), command.OutOrStdout(), logger)
		},
	}
	flags := command.Flags()
	flags.IntVar(&d.nodes, "nodes", 3, "how many nodes")
	flags.IntVar(&d.port, "http-port", 8701, "HTTP port of the first node")
	flags.StringVar(&d.data, "data", "", "folder of the state; default: a temporary one, removed at the end")
	addHosts(flags, &d.config)
	addDialects(flags, &d.config)
	addLogging(flags, &d.logs, "error")
	return command
}

func (d *devFlags) check() error {
	if d.nodes < 1 || d.nodes > maxDevNodes {
		return fmt.Errorf("--nodes must be between 1 and %d", maxDevNodes)
	}
	if last := d.port + peerOffset + d.nodes - 1; d.port < 1 || last > 65535 {
		return fmt.Errorf("--http-port must be between 1 and %d", 65535-peerOffset-d.nodes+1)
	}
	return errors.Join(d.config.validateHosts(), d.config.validateDialects())
}

func (d *devFlags) run(ctx context.Context, out io.Writer, log hclog.Logger) error {
	folder, err := d.folder()
	if err != nil {
		return err
	}
	if d.data == "" {
		defer os.RemoveAll(folder)
	}
	fatal := make(chan error, 1)
	nodes, err := d.start(ctx, folder, log, firstTo(fatal))
	if err == nil {
		if err = d.ready(ctx, nodes, fatal); err == nil {
			err = d.serve(ctx, out, folder, fatal)
		}
	}
	stopAll(nodes)
	return err
}

// serve prints how to use the nodes. It blocks until ctx ends or a node fails.
func (d *devFlags) serve(ctx context.Context, out io.Writer, folder string, fatal <-chan error) error {
	if ctx.Err() == nil {
		d.welcome(out, folder)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-fatal:
		return err
	}
}

// start starts the nodes at the same time, since most of a start is waiting for syncs of the disk. If it fails, it also
// returns the nodes that have started.
func (d *devFlags) start(ctx context.Context, folder string, log hclog.Logger, fatal func(error)) ([]*node, error) {
	var peers []cluster.Peer
	for i := range d.nodes {
		peers = append(peers, cluster.Peer{ID: fmt.Sprintf("n%d", i+1), Address: fmt.Sprintf("127.0.0.1:%d", d.port+peerOffset+i)})
	}
	nodes, failures := make([]*node, d.nodes), make([]error, d.nodes)
	var starting sync.WaitGroup
	for i, peer := range peers {
		c := d.config
		c.nodesHere = d.nodes
		c.nodeID, c.peers, c.peerAddress = peer.ID, peers, peer.Address
		c.httpAddress = fmt.Sprintf("127.0.0.1:%d", d.port+i)
		c.data = filepath.Join(folder, peer.ID)
		starting.Go(func() { nodes[i], failures[i] = d.startOne(ctx, c, log, fatal) })
	}
	starting.Wait()
	nodes = slices.DeleteFunc(nodes, func(n *node) bool { return n == nil })
	return nodes, cmp.Or(failures...)
}

// startOne starts a node. It calls fatal if the node fails later.
func (d *devFlags) startOne(ctx context.Context, c config, log hclog.Logger, fatal func(error)) (*node, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	n, err := startNode(ctx, c, log.Named(c.nodeID), fatal)
	if taken := (*portTaken)(nil); errors.As(err, &taken) { // the flag of dev differs from the flag of serve
		taken.flag = "--http-port"
		err = fmt.Errorf("%w; the nodes need ports %d to %d and %d to %d", taken, d.port, d.port+d.nodes-1, d.port+peerOffset, d.port+peerOffset+d.nodes-1)
	}
	if err != nil {
		return nil, err
	}
	go func() {
		if err := <-n.served; err != nil {
			fatal(fmt.Errorf("%s: %w", c.nodeID, err))
		}
	}()
	return n, nil
}

// ready blocks until all nodes are ready, or ctx ends.
func (d *devFlags) ready(ctx context.Context, nodes []*node, fatal <-chan error) error {
	late := time.After(devReadyIn)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for len(nodes) > 0 {
		if nodes[0].ready() {
			nodes = nodes[1:]
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-fatal:
			return err
		case <-late:
			return fmt.Errorf("the nodes were not ready within %v; --log-level info shows more", devReadyIn)
		case <-poll.C:
		}
	}
	return nil
}

func stopAll(nodes []*node) {
	var stopping sync.WaitGroup
	for _, n := range nodes {
		stopping.Go(n.stop)
	}
	stopping.Wait()
}

// welcome prints three commands to paste. If there are several nodes, each command uses another node.
func (d *devFlags) welcome(out io.Writer, folder string) {
	at := func(i int) string { return fmt.Sprintf("http://127.0.0.1:%d", d.port+i%d.nodes) }
	number, _ := version()
	fmt.Fprintf(out, "Signalbox %s: %d nodes, on %s", number, d.nodes, at(0))
	if d.nodes > 1 {
		fmt.Fprintf(out, " to %s", at(d.nodes-1))
	}
	fmt.Fprintf(out, "; state in %s; Ctrl-C stops.\nPaste these to make a semaphore, acquire it, and release it:\n\n", folder)
	fmt.Fprintf(out, "  curl -X PUT %s/v1/semaphores/db -d '{\"permits\":3}'\n", at(0))
	fmt.Fprintf(out, "  lease=$(curl -sX POST %s/v1/semaphores/db/leases -d '{\"ttl\":\"30s\",\"wait\":\"10s\"}'); echo \"$lease\"\n", at(1))
	fmt.Fprintf(out, "  curl -X DELETE %s/v1/sessions/$(echo \"$lease\" | sed 's/.*\"session\":\"\\([0-9]*\\).*/\\1/')\n\n", at(2))
}

// devRecord is a file in the folder with the number of nodes and their ports. A later start must use the same ports,
// since the nodes have recorded each other's ports.
const devRecord = "signalbox-dev"

// folder makes the folder that has the nodes' folders, or checks an existing one.
func (d *devFlags) folder() (string, error) {
	if d.data == "" {
		return os.MkdirTemp("", "signalbox-dev-")
	}
	if err := os.MkdirAll(d.data, 0o700); err != nil {
		return "", fmt.Errorf("--data: %w", err)
	}
	record := filepath.Join(d.data, devRecord)
	settings := fmt.Sprintf("--nodes %d --http-port %d\n", d.nodes, d.port)
	found, err := os.ReadFile(record)
	switch {
	case err == nil && string(found) == settings:
		return d.data, nil
	case err == nil:
		return "", fmt.Errorf("--data: %s was made with %s: give the same, or another folder", d.data, found)
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("--data: %w", err)
	}
	if entries, err := os.ReadDir(d.data); err != nil || len(entries) > 0 {
		return "", fmt.Errorf("--data: %s is not empty, and was not made by signalbox dev", d.data)
	}
	if err := os.WriteFile(record, []byte(settings), 0o600); err != nil {
		return "", fmt.Errorf("--data: %w", err)
	}
	return d.data, nil
}
