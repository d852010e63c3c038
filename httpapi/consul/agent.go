package consul

import (
	"net"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// outOfContact is the silence after which a member's check is critical.
const outOfContact = 5 * time.Second

// nodes serves the routes about nodes.
type nodes struct{ *dialect }

func (n nodes) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("GET", "/v1/agent/self", n.self),
		exchange.On("GET", "/v1/status/leader", n.leader),
		exchange.On("GET", "/v1/status/peers", n.peers),
		exchange.On("GET", "/v1/catalog/nodes", n.catalog),
		exchange.On("GET", "/v1/health/node/:node", n.healthOfNode),
		exchange.On("GET", "/v1/health/node/", n.healthOfNode),
	}
}

// selfBody describes this node, as consul lock reads it.
type selfBody struct {
	Config struct {
		Datacenter        string
		PrimaryDatacenter string
		NodeName          string
		NodeID            string
		Revision          string
		Server            bool
		Version           string
	}
	Member struct {
		Name   string
		Addr   string
		Port   int
		Tags   struct{}
		Status int
	}
	Meta struct{}
}

// self shows this node. It needs no leader.
func (n nodes) self(c echo.Context) error {
	q, err := readPlainQuery(c)
	if err != nil {
		return err
	}
	s := n.Node.Status()
	var body selfBody
	body.Config.Datacenter, body.Config.PrimaryDatacenter, body.Config.NodeName = datacenter, datacenter, s.Node
	body.Config.Server, body.Config.Version = true, n.options.Version
	body.Member.Name, body.Member.Status = s.Node, 1 // alive
	for _, m := range s.Members {
		if m.ID == s.Node {
			body.Member.Addr, body.Member.Port = addressOf(&m)
		}
	}
	return n.sendJSON(c, &q, &body)
}

func addressOf(m *cluster.Member) (host string, port int) {
	host, text, _ := net.SplitHostPort(m.Address)
	port, _ = strconv.Atoi(text) // 0 for an invalid address
	return host, port
}

func (n nodes) leader(c echo.Context) error {
	return n.status(c, func(s *cluster.Status) any {
		for _, m := range s.Members {
			if m.ID == s.Leader {
				return m.Address
			}
		}
		return ""
	})
}

// peers shows the peer addresses of the members with a vote.
func (n nodes) peers(c echo.Context) error {
	return n.status(c, func(s *cluster.Status) any {
		addresses := []string{}
		for _, m := range s.Members {
			if m.Voter {
				addresses = append(addresses, m.Address)
			}
		}
		return addresses
	})
}

func (n nodes) status(c echo.Context, show func(s *cluster.Status) any) error {
	q, err := n.readQuery(c)
	if err == nil {
		err = firstError(q.checkNamespace, q.checkDatacenter)
	}
	if err != nil {
		return err
	}
	s := n.Node.Status()
	return n.sendJSON(c, &q, show(&s))
}

// nodeBody is a member in the catalog.
type nodeBody struct {
	ID              string
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses struct{}
	Meta            struct{}
	CreateIndex     uint64
	ModifyIndex     uint64
}

// catalog shows the members, by name.
func (n nodes) catalog(c echo.Context) error {
	return n.readNodes(c, func() error { return nil }, func(m *cluster.Member) any {
		host, _ := addressOf(m)
		return &nodeBody{Node: m.ID, Address: host, Datacenter: datacenter, CreateIndex: 1, ModifyIndex: 1}
	})
}

type checkBody struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	CreateIndex uint64
	ModifyIndex uint64
}

// healthOfNode shows the only check of a member.
func (n nodes) healthOfNode(c echo.Context) error {
	name := pathText(c, "node")
	return n.readNodes(c, required(name, "node name"), func(m *cluster.Member) any {
		if m.ID != name {
			return nil
		}
		body := &checkBody{Node: m.ID, CheckID: onlyCheck, Name: "Serf Health Status", Status: "passing", Output: "Agent alive and reachable",
			ServiceTags: []string{}, CreateIndex: 1, ModifyIndex: 1}
		if m.LastContact < 0 || m.LastContact > outOfContact {
			body.Status, body.Output = "critical", "Agent not live or unreachable"
		}
		return body
	})
}

// readNodes sends a list of the members. show renders a member, or returns nil to leave it out. Members are always read
// from this node's own state, so the headers are as with ?stale.
func (n nodes) readNodes(c echo.Context, named func() error, show func(m *cluster.Member) any) error {
	q, err := n.readQuery(c)
	if err == nil {
		err = firstError(q.checkNamespace, named, q.checkDatacenter)
	}
	if err != nil {
		return err
	}
	q.stale = true
	at, err := n.Node.Read(c.Request().Context(), q.consistency())
	if err != nil {
		return err
	}
	l := n.newList()
	defer l.done()
	s := n.Node.Status()
	for i := range s.Members {
		if body := show(&s.Members[i]); body != nil {
			if err := l.add(body); err != nil {
				return err
			}
		}
	}
	l.done()
	return n.sendRead(c, &q, at, 1, found(l.bytes()))
}
