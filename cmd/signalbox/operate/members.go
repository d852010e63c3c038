package operate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/exit"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/target"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/terminal"
)

func memberVerbs() []verb { return []verb{membersVerb(), leaderVerb(), statusVerb()} }

func membersVerb() verb {
	return verb{use: "members", short: "List the nodes of the cluster",
		below: []verb{
			{use: "add ID HOST:PORT", short: "Add a node, by the address that it has for other nodes", least: 2, most: 2,
				long: "\n\nStart the node first, with all members in its --peers. It votes once it has caught up.",
				run: func(c *call) error {
					id := c.arguments[0]
					voting, err := c.operator.AddMember(c, id, c.arguments[1])
					if err != nil {
						return err
					}
					text := "votes"
					if !voting {
						text = "is catching up, and gets its vote by itself"
					}
					return errors.Join(c.Result(id, map[string]any{"id": id, "voter": voting}), c.Printf("%s %s", id, text))
				}},
			{use: "rm ID", short: "Remove a node", long: " Nothing on its disk is deleted. It asks first.", least: 1, most: 1, complete: []source{memberIDs},
				asks: func(c *call) (string, error) {
					cluster, err := c.operator.Cluster(c)
					if err != nil {
						return "", err
					}
					return fmt.Sprintf("Remove %s from the cluster of %d nodes. It can't come back with the folder that it has.", c.arguments[0], len(cluster.Members)), nil
				},
				run: func(c *call) error {
					id := c.arguments[0]
					if err := c.operator.RemoveMember(c, id); err != nil {
						if errors.Is(err, operator.ErrUnknownMember) {
							return refusedFor("\"signalbox members\" lists all.", "the cluster has no node %q", id)
						}
						return err
					}
					return errors.Join(c.Result(id, map[string]string{"removed": id}), c.Printf("%s removed", id))
				}}},
		run: func(c *call) error {
			cluster, err := c.operator.Cluster(c)
			if err != nil {
				return err
			}
			return printMembers(c, cluster)
		}}
}

func printMembers(c *call, cluster *operator.Cluster) error {
	return terminal.List(c.Output, func(yield func(operator.Member, error) bool) {
		for _, m := range cluster.Members {
			if !yield(m, nil) {
				return
			}
		}
	}, []string{"NODE", "PEER ADDRESS", "ROLE", "LAG", "LAST CONTACT", "KNOWS LEVEL"}, func(m operator.Member) string { return m.ID }, func(m operator.Member) []string {
		role := "no vote yet"
		if m.Leader {
			role = "leader"
		} else if m.Voter {
			role = "follower"
		}
		return []string{m.ID, m.Peer, role, fmt.Sprint(m.Lag), terminal.Short(m.LastContact), fmt.Sprint(m.Knows)}
	})
}

func leaderVerb() verb {
	return verb{use: "leader [NODE]", short: "Print the node that leads, or hand the leadership over to NODE", most: 1, complete: []source{memberIDs},
		long: "\n\nMeanwhile requests wait for about a second; no lease ends by it.",
		run: func(c *call) error {
			id := c.argument(0)
			if id != "" {
				if err := c.operator.TransferLeadership(c, id); err != nil {
					if errors.Is(err, operator.ErrUnknownMember) {
						return refusedFor("\"signalbox members\" lists all.", "the cluster has no node %q", id)
					}
					return err
				}
				return errors.Join(c.Result(id, map[string]string{"leader": id}), c.Printf("%s leads", id))
			}
			cluster, err := c.operator.Cluster(c)
			if err != nil {
				return err
			}
			if cluster.Leader == "" {
				return noLeader(cluster.Node)
			}
			return errors.Join(c.Result(cluster.Leader, map[string]string{"leader": cluster.Leader}), c.Printf("%s", cluster.Leader))
		}}
}

func noLeader(node string) error {
	return &exit.Error{Status: exit.StatusUnavailable, Err: &target.Advice{Err: fmt.Errorf("%s knows no leader", node),
		Next: "A majority of the nodes must run and reach each other: \"signalbox status\" with all of them in --addr."}}
}

// nodeStatus is the status of one address.
type nodeStatus struct {
	Address string            `json:"address"`
	Error   string            `json:"error,omitempty"`
	Cluster *operator.Cluster `json:"status,omitempty"`
}

func statusVerb() verb {
	return verb{use: "status", short: "Show the state of the cluster, as each node of --addr sees it",
		long: "\n\nThe exit status is 6 if one of them does not reply, or knows no leader, and 5 if one refuses the token. Of two\n" +
			"addresses of one host and port, by http:// and https://, one that replies is enough.",
		run: func(c *call) error {
			var all []nodeStatus
			var rows [][]string
			var best *operator.Cluster
			failed := map[string]error{} // by host and port; nil: it has replied
			for _, address := range c.cluster.Addresses {
				one := nodeStatus{Address: target.Shown(address)}
				cluster, err := ask(c, address)
				_, host, _ := strings.Cut(one.Address, "://")
				if before, asked := failed[host]; !asked || before != nil {
					failed[host] = err
				}
				if one.Cluster = cluster; err != nil {
					one.Error = target.Explain(err).Error()
					rows = append(rows, []string{one.Address, "", noReply(err), "", "", ""})
				} else {
					rows = append(rows, []string{one.Address, cluster.Node, orUnknown(cluster.Leader), fmt.Sprint(cluster.Term), fmt.Sprint(cluster.AppliedIndex), fmt.Sprint(cluster.Level)})
					if best == nil || best.Leader == "" || cluster.Node == cluster.Leader {
						best = cluster
					}
				}
				all = append(all, one)
			}
			return errors.Join(printStatus(c, all, rows, best), worst(failed, all))
		}}
}

// noReply says for people why an address has no status.
func noReply(err error) string {
	if exit.StatusOf(err) == exit.StatusRefused {
		return "refused"
	}
	return "no reply"
}

// printStatus prints the status of each address, and the members as the best of them sees
// them; nil: no node has replied.
func printStatus(c *call, all []nodeStatus, rows [][]string, best *operator.Cluster) error {
	if best == nil {
		if c.Format == terminal.JSON {
			return c.Result("", all)
		}
		return nil
	}
	err := errors.Join(c.Result(best.ID, all), c.Printf("cluster %s: %d nodes\n", best.ID, len(best.Members)),
		c.Rows([]string{"ADDRESS", "NODE", "LEADER", "TERM", "APPLIED", "LEVEL"}, rows), c.Printf(""))
	if c.Format == terminal.Table {
		err = errors.Join(err, printMembers(c, best))
	}
	return err
}

// worst is the failure that decides the exit status: a node that does not reply, else one
// that refuses, else one that knows no leader.
func worst(failed map[string]error, all []nodeStatus) (err error) {
	for _, host := range slices.Sorted(maps.Keys(failed)) {
		if one := failed[host]; one != nil && (err == nil || exit.StatusOf(one) > exit.StatusOf(err)) {
			err = one
		}
	}
	if err == nil && slices.ContainsFunc(all, func(n nodeStatus) bool { return n.Cluster != nil && n.Cluster.Leader == "" }) {
		return noLeader("a node")
	}
	return err
}

// ask reads the cluster as one node sees it.
func ask(c *call, address string) (*operator.Cluster, error) {
	cfg := c.cluster
	cfg.Addresses = []string{address}
	client, err := signalbox.New(cfg)
	if err != nil { // an http:// address that is listed with https:// too, and gets no token
		cfg.Token, cfg.TokenFile = "", ""
		client, err = signalbox.New(cfg)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close(c) }() // it has no session
	return operator.New(client).Cluster(c)
}

func orUnknown(leader string) string {
	if leader == "" {
		return "none known"
	}
	return leader
}
