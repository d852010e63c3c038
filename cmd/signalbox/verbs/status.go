package verbs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// nodeStatus is the status of the node at one address.
type nodeStatus struct {
	Address string            `json:"address"`
	Error   string            `json:"error,omitempty"`
	Cluster *operator.Cluster `json:"status,omitempty"`
	err     error
}

// host returns the host and port of the address, without the scheme.
func (n *nodeStatus) host() string {
	_, host, _ := strings.Cut(n.Address, "://")
	return host
}

func statusVerb() verb {
	return verb{use: "status", short: "Show the state of the cluster, as each node of --addr sees it",
		long: "\n\nThe exit status is 7 if a node is down, does not reply or lacks disk space, while the others work; 6 if no node replies,\n" +
			"or no node knows a leader; and 5 if a node refuses the token. Of two addresses of one host and port, by http:// and https://, one\n" +
			"that replies is enough.",
		run: func(c *call) error {
			all := make([]nodeStatus, len(c.cluster.Addresses))
			askAll(c, all, func(int) bool { return true })
			if slices.ContainsFunc(all, func(n nodeStatus) bool { return n.Cluster == nil && cli.StatusOf(n.err) != cli.StatusRefused }) {
				// While the first requests waited for a silent node, the other nodes may have noticed that it is down.
				askAll(c, all, func(i int) bool { return all[i].Cluster != nil })
			}
			var best *operator.Cluster
			for i := range all {
				if here := all[i].Cluster; here != nil && (best == nil || knowsMore(here, best)) {
					best = here
				}
			}
			return errors.Join(printStatus(c, all, best), verdict(all, best))
		}}
}

// askAll reads the cluster from the wanted addresses, at the same time, into their places in all.
func askAll(c *call, all []nodeStatus, wanted func(i int) bool) {
	var requests sync.WaitGroup
	for i, address := range c.cluster.Addresses {
		if !wanted(i) {
			continue
		}
		requests.Go(func() {
			cluster, err := ask(c, address)
			text := ""
			if err != nil {
				text = cli.Explain(err).Error()
			}
			all[i] = nodeStatus{cli.ShownAddress(address), text, cluster, err}
		})
	}
	requests.Wait()
}

// ask reads the cluster as one node sees it, in one attempt, because a node that refuses connections is down now.
func ask(c *call, address string) (*operator.Cluster, error) {
	cfg := c.cluster
	cfg.Addresses, cfg.AttemptTimeout, cfg.GiveUpAfter = []string{address}, c.cluster.GiveUpAfter, 1 // state: of this copy
	client, err := signalbox.New(cfg)
	if err != nil { // an http:// address that is also listed with https:// gets no token
		cfg.Token, cfg.TokenFile = "", ""
		client, err = signalbox.New(cfg)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close(c) }() // the client has no session
	return operator.New(client).Cluster(c)
}

// knowsMore reports whether first is the better view of the cluster: its node knows a leader while the other does not,
// knows a leader of a later term, or is the leader.
func knowsMore(first, other *operator.Cluster) bool {
	if (first.Leader == "") != (other.Leader == "") {
		return first.Leader != ""
	}
	if first.Term != other.Term {
		return first.Term > other.Term
	}
	return first.Leader == first.Node && other.Leader != other.Node
}

// printStatus prints the status of each address, and the members according to the best view, or nil if no node has
// replied.
func printStatus(c *call, all []nodeStatus, best *operator.Cluster) error {
	if c.Format == cli.JSON {
		return cli.PrintList(c.Output, each(all), nil, nil, nil)
	}
	if best == nil {
		return nil
	}
	var rows [][]string
	var failed []int
	for i, node := range all {
		row := []string{node.Address, "", "no reply", "", "", ""}
		if here := node.Cluster; here != nil {
			row = []string{node.Address, here.Node, orUnknown(here.Leader), fmt.Sprint(here.Term), fmt.Sprint(here.AppliedIndex), fmt.Sprint(here.Level)}
		} else if failed = append(failed, i); cli.StatusOf(node.err) == cli.StatusRefused {
			row[2] = "refused"
		}
		rows = append(rows, row)
	}
	err := errors.Join(c.Result(best.ID, nil), c.Printf("cluster %s: %d nodes\n", best.ID, len(best.Members)),
		c.Rows([]string{"ADDRESS", "NODE", "LEADER", "TERM", "APPLIED", "LEVEL"}, rows, failed...), c.Printf(""))
	if c.Format == cli.Table {
		err = errors.Join(err, printMembers(c, best))
	}
	return err
}

// verdict returns the error that decides the exit status.
func verdict(all []nodeStatus, best *operator.Cluster) error {
	replied := map[string]bool{} // by host and port
	for i := range all {
		replied[all[i].host()] = replied[all[i].host()] || all[i].Cluster != nil
	}
	var refused, silent error
	for i := range all {
		node := &all[i]
		switch {
		case replied[node.host()]:
		case cli.StatusOf(node.err) == cli.StatusRefused:
			refused = node.err
		case silent == nil:
			silent = fmt.Errorf("%s does not reply", node.Address)
			if best == nil {
				silent = node.err
			}
			if best == nil && len(all) > 1 {
				silent = fmt.Errorf("no node at %d addresses replies: %w", len(all), silent)
			}
		}
	}
	switch {
	case best == nil && silent != nil:
		return silent
	case best != nil && best.Leader == "":
		return unwell(best, cli.StatusUnreachable)
	case refused != nil:
		return refused
	}
	if problem, _ := troubles(best); problem != "" {
		return unwell(best, cli.StatusDegraded)
	}
	for i := range all {
		if here := all[i].Cluster; here != nil && here.Leader == "" {
			return unwell(here, cli.StatusDegraded)
		}
	}
	if silent != nil {
		return &cli.ExitError{Status: cli.StatusDegraded, Err: &cli.Advice{Err: fmt.Errorf("%w, and all members reply to %s", silent, best.Node),
			Next: "It may have ended just now, or its address in --addr is wrong or can't be reached from here."}}
	}
	return nil
}

func orUnknown(leader string) string {
	if leader == "" {
		return "not known"
	}
	return leader
}
