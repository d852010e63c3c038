package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

func memberVerbs() []verb { return []verb{membersVerb(), leaderVerb(), levelVerb(), statusVerb()} }

func membersVerb() verb {
	return verb{use: "members", short: "List the nodes of the cluster",
		below: []verb{
			{use: "add ID HOST:PORT", short: "Add a node, by the address that it has for other nodes", minimum: 2, maximum: 2,
				long: "\n\nStart the node first, with all members in its --peers. It votes once it has caught up.",
				run: func(c *call) error {
					id := c.arguments[0]
					voting, err := c.operator.AddMember(c, id, c.arguments[1])
					if err != nil {
						return err
					}
					text := "votes"
					if !voting {
						text = "is catching up, and then gets its vote"
					}
					return errors.Join(c.Result(id, map[string]any{"id": id, "voter": voting}), c.Printf("%s %s", id, text))
				}},
			{use: "rm ID", short: "Remove a node", long: " The data on its disk stays. It asks first.", minimum: 1, maximum: 1, complete: []source{memberIDs},
				asks: func(c *call) (string, error) {
					cluster, err := c.readCluster()
					if err != nil {
						return "", err
					}
					return fmt.Sprintf("Remove %s from the cluster of %d nodes. It can't come back with the folder that it has.", c.arguments[0], len(cluster.Members)), nil
				},
				run: func(c *call) error {
					id := c.arguments[0]
					if err := c.operator.RemoveMember(c, id); err != nil {
						return unknownMember(err, id)
					}
					return errors.Join(c.Result(id, map[string]string{"removed": id}), c.Printf("%s removed", id))
				}}},
		run: func(c *call) error {
			cluster, err := c.readCluster()
			if err != nil {
				return err
			}
			return errors.Join(printMembers(c, cluster), warn(c, cluster))
		}}
}

// unknownMember adds advice to the error that the cluster has no such node.
func unknownMember(err error, id string) error {
	if errors.Is(err, operator.ErrUnknownMember) {
		return refusedFor("\"signalbox members\" lists all.", "the cluster has no node %q", id)
	}
	return err
}

// printMembers lists the members. It prints members that are down in red.
func printMembers(c *call, cluster *operator.Cluster) error {
	if c.Format != cli.Table {
		return cli.PrintList(c.Output, each(cluster.Members), nil, func(m operator.Member) string { return m.ID }, nil)
	}
	var rows [][]string
	var down []int
	for i, m := range cluster.Members {
		role := "no vote yet"
		if m.Leader {
			role = "leader"
		} else if m.Voter {
			role = "follower"
		}
		lag := "?"
		if m.Lag >= 0 {
			lag = fmt.Sprint(m.Lag)
		}
		if m.State == stateDown {
			down = append(down, i)
		}
		rows = append(rows, []string{m.ID, m.Peer, role, stateOf(m), lag, cmp.Or(m.Storage, "?"), knownLevel(m)})
	}
	return c.Rows([]string{"NODE", "PEER ADDRESS", "ROLE", "STATE", "LAG", "DISK", "KNOWS LEVEL"}, rows, down...)
}

// knownLevel returns the feature level that a member's program knows, for people.
func knownLevel(m operator.Member) string {
	if m.Knows == 0 { // the replying node has not seen the member yet
		return "?"
	}
	return fmt.Sprint(m.Knows)
}

// stateDown is the state of a member that does not reply.
const stateDown = "down"

// stateOf returns the state of a member for people, and how long it has lasted.
func stateOf(m operator.Member) string {
	switch {
	case m.State != stateDown:
		return m.State
	case m.LastContact < 0:
		return "down, never seen"
	}
	return "down for " + cli.ShortDuration(m.LastContact)
}

// warn prints what is wrong with the cluster, if anything.
func warn(c *call, cluster *operator.Cluster) error {
	if problem, _ := troubles(cluster); problem != "" {
		return c.Printf("\n%s", c.Red(problem))
	}
	return nil
}

// troubles returns what is wrong with a cluster, as the replying node sees it, and what the user can do. Both are ""
// for a healthy cluster.
func troubles(cluster *operator.Cluster) (problem, next string) {
	var down, short []string
	voters, up := 0, 0
	for _, m := range cluster.Members {
		if m.State == stateDown {
			down = append(down, fmt.Sprintf("%s is %s", m.ID, stateOf(m)))
		}
		if m.Storage == "low" || m.Storage == "full" {
			short = append(short, fmt.Sprintf("the disk of %s is %s", m.ID, m.Storage))
		}
		if m.Voter {
			voters++
			if m.State != stateDown {
				up++
			}
		}
	}
	list := strings.Join(down, ", ")
	switch {
	case cluster.Leader == "" && len(down) == 0:
		return cluster.Node + " knows no leader", "If this lasts, see the logs of the nodes."
	case cluster.Leader == "" || 2*up <= voters && voters > 0:
		return fmt.Sprintf("no majority: %s reaches %d of %d voting nodes, itself included, and %d are needed to change anything; %s", cluster.Node, up, voters, voters/2+1, list),
			"Start these nodes, or mend their network: the cluster then goes on. If their disks are lost for good, see \"signalbox recover --help\"."
	case len(down) > 0:
		return strings.Join(append(down, short...), ", ") + "; the others work", "Start it again, or see its log. If its disk is lost for good, \"signalbox members rm\" takes it out."
	case len(short) > 0:
		return strings.Join(short, ", "), "Make room there: below --min-free a node gives way as leader or, if no other has room, refuses requests that grow the state."
	}
	return "", ""
}

func leaderVerb() verb {
	return verb{use: "leader [NODE]", short: "Print the node that leads, or hand the leadership over to NODE", maximum: 1, complete: []source{memberIDs},
		long: "\n\nDuring the hand-over requests wait, some milliseconds as a rule; no lease ends by it.",
		run: func(c *call) error {
			id := c.argument(0)
			if id != "" {
				if err := c.operator.TransferLeadership(c, id); err != nil {
					return unknownMember(err, id)
				}
				return errors.Join(c.Result(id, map[string]string{"leader": id}), c.Printf("%s leads", id))
			}
			cluster, err := c.readCluster()
			if err != nil {
				return err
			}
			if cluster.Leader == "" {
				return unwell(cluster, cli.StatusUnreachable)
			}
			return errors.Join(c.Result(cluster.Leader, map[string]string{"leader": cluster.Leader}), c.Printf("%s", cluster.Leader))
		}}
}

// unwell returns the error of a verb that has found troubles.
func unwell(cluster *operator.Cluster, status int) error {
	problem, next := troubles(cluster)
	return &cli.ExitError{Status: status, Err: &cli.Advice{Err: errors.New(problem), Next: next}}
}

func levelVerb() verb {
	return verb{use: "level", short: "Print the feature level of the cluster, and the highest that each node's program knows",
		below: []verb{{use: "raise N", short: "Raise the feature level, for ever", minimum: 1, maximum: 1,
			long: " Every node's program must know it. It asks first.\n\nPrograms that do not know the level can't take part in the cluster after that.",
			asks: func(c *call) (string, error) {
				level, err := levelOf(c)
				if err != nil {
					return "", err
				}
				cluster, err := c.readCluster()
				if err != nil {
					return "", err
				}
				return fmt.Sprintf("Raise the feature level of cluster %s from %d to %d, for ever. Programs that don't know it can't take part then.", cluster.ID, cluster.Level, level), nil
			},
			run: func(c *call) error {
				level, err := levelOf(c)
				if err != nil {
					return err
				}
				if err := c.operator.RaiseLevel(c, level); err != nil {
					return err
				}
				return errors.Join(c.Result(fmt.Sprint(level), map[string]any{"level": level}), c.Printf("the level is %d", level))
			}}},
		run: func(c *call) error {
			cluster, err := c.readCluster()
			if err != nil {
				return err
			}
			known := map[string]uint32{}
			var rows [][]string
			for _, m := range cluster.Members {
				known[m.ID] = m.Knows
				rows = append(rows, []string{m.ID, knownLevel(m)})
			}
			return errors.Join(c.Result(fmt.Sprint(cluster.Level), map[string]any{"level": cluster.Level, "knows": known}),
				c.Printf("the level is %d\n", cluster.Level), c.Rows([]string{"NODE", "KNOWS LEVEL"}, rows))
		}}
}

// levelOf parses the argument of "level raise".
func levelOf(c *call) (uint32, error) {
	level, err := strconv.ParseUint(c.arguments[0], 10, 32)
	if err != nil || level == 0 {
		return 0, cli.UsageError(fmt.Errorf("%q is no feature level: it is a whole number from 1 on", c.arguments[0]))
	}
	return uint32(level), nil
}
