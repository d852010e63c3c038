package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/internal/certs"
)

// batchSize is how many operations one request of /v1/batch carries.
const batchSize = 100

// BenchmarkWrites compares single writes on the leader with the bare loop,
// writes through a follower with those on the leader, and operations in
// batches with single requests. Each is a ratio within one run.
func BenchmarkWrites(b *testing.B) {
	bare := startBare(b)
	leader, follower := startTrio(b)
	for _, connections := range []int{64, 256} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			prepare(b, "http://"+leader, connections, &http.Client{})
			for b.Loop() {
				rates := compare(b, connections,
					&loader{name: "bare loop, leader", addresses: []string{bare}, operations: 1, request: count},
					&loader{name: "signalbox, leader", addresses: []string{leader}, operations: 1, request: up},
					&loader{name: "signalbox, follower", addresses: []string{follower}, operations: 1, request: up},
					&loader{name: "signalbox, batches of 100", addresses: []string{leader}, operations: batchSize, request: batch},
				)
				b.ReportMetric(rates[1].wall/rates[0].wall, "leader/bare")
				b.ReportMetric(rates[2].wall/rates[1].wall, "follower/leader")
				b.ReportMetric(rates[3].wall/rates[1].wall, "batch/single")
				b.ReportMetric(rates[3].processor/rates[1].processor, "batch/single-cpu")
			}
		})
	}
}

// count is the bare loop's write: a command of about the size of an up.
func count(c, _ int) (method, path, body string) {
	return http.MethodPost, "/count", fmt.Sprintf("%040d", c)
}

func up(c, _ int) (method, path, body string) {
	return http.MethodPost, fmt.Sprintf("/v1/semaphores/own-%d/up", c), ""
}

func batch(c, _ int) (method, path, body string) {
	operation := fmt.Sprintf(`{"op":"up","semaphore":"own-%d"}`, c)
	return http.MethodPost, "/v1/batch", `{"operations":[` + strings.Repeat(operation+",", batchSize-1) + operation + `]}`
}

// prepare makes each connection's own semaphore.
func prepare(b *testing.B, base string, connections int, client *http.Client) {
	b.Helper()
	defer client.CloseIdleConnections()
	for c := range connections {
		request, err := http.NewRequest(http.MethodPut, fmt.Sprintf("%s/v1/semaphores/own-%d", base, c), strings.NewReader(`{"permits":0}`))
		if err != nil {
			b.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			b.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode >= 300 {
			b.Fatalf("semaphore %d: %s", c, answer.Status)
		}
	}
}

// startTrio starts three nodes, each as changed, and returns the HTTP addresses of the
// leader and of a follower.
func startTrio(b *testing.B, change ...func(c *config)) (leader, follower string) {
	b.Helper()
	d := devFlags{nodes: 3, port: freePorts(b, 0, 1, 2, peerOffset, peerOffset+1, peerOffset+2)}
	var peers []cluster.Peer
	for i := range d.nodes {
		peers = append(peers, cluster.Peer{ID: fmt.Sprintf("n%d", i+1), Address: fmt.Sprintf("127.0.0.1:%d", d.port+peerOffset+i)})
	}
	fatal := make(chan error, d.nodes)
	var nodes []*node
	b.Cleanup(func() { stopAll(nodes) })
	for i, own := range peers {
		c := defaultConfig()
		c.nodesHere, c.nodeID, c.peers, c.peerAddress, c.data = d.nodes, own.ID, peers, own.Address, b.TempDir()
		c.httpAddress = fmt.Sprintf("127.0.0.1:%d", d.port+i)
		for _, f := range change {
			f(&c)
		}
		n, err := startNode(b.Context(), c, hclog.NewNullLogger(), firstTo(fatal))
		must(b, err)
		nodes = append(nodes, n)
	}
	must(b, d.ready(b.Context(), nodes, fatal))
	for i, n := range nodes {
		address := fmt.Sprintf("127.0.0.1:%d", d.port+i)
		if status := n.cluster.Status(); status.Leader == status.Node {
			leader = address
		} else {
			follower = address
		}
	}
	if leader == "" {
		b.Fatal("no leader among the nodes")
	}
	return leader, follower
}

// BenchmarkSecured compares writes with a token on a leader whose peers have mutual TLS,
// and writes over HTTPS, with those on a leader without either: keep-alive connections, each a ratio
// within one run. All nodes and clients share this machine, so both ends of each TLS
// connection count.
func BenchmarkSecured(b *testing.B) {
	dir := makeCerts(b, "ca", "node n1", "node n2", "node n3")
	file := func(name string) string { return filepath.Join(dir, name) }
	pair := func(c *config) certs.Pair {
		return certs.Pair{Cert: file("node-" + c.nodeID + ".pem"), Key: file("node-" + c.nodeID + "-key.pem")}
	}
	if o := command(b, []string{"token", "new", "load", "--token-file", file("token"), "--append", file("tokens.toml")}); o.status != 0 {
		b.Fatalf("%+v", o)
	}
	token, err := os.ReadFile(file("token"))
	must(b, err)
	head := "Authorization: Bearer " + strings.TrimSpace(string(token)) + "\r\n"
	peers := func(c *config) {
		c.peerCerts, c.tokens = certs.Config{Pair: pair(c), CA: file("ca.pem")}, file("tokens.toml")
	}
	api := func(c *config) { c.apiCerts = certs.Config{Pair: pair(c)} }
	plain, _ := startTrio(b)
	mutual, _ := startTrio(b, peers)
	https, _ := startTrio(b, api)
	trust := trusting(b, dir)
	for _, connections := range []int{64, 256} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			prepare(b, "http://"+plain, connections, &http.Client{})
			prepare(b, "http://"+mutual, connections, admin(b, dir, file("token")).http)
			prepare(b, "https://"+https, connections, &http.Client{Transport: &http.Transport{TLSClientConfig: trust}})
			for b.Loop() {
				rates := compare(b, connections,
					&loader{name: "plain", addresses: []string{plain}, operations: 1, request: up},
					&loader{name: "mutual TLS between peers, tokens", addresses: []string{mutual}, operations: 1, request: up, head: head},
					&loader{name: "HTTPS", addresses: []string{https}, operations: 1, request: up, trust: trust},
				)
				b.ReportMetric(rates[1].wall/rates[0].wall, "mutual/plain")
				b.ReportMetric(rates[2].wall/rates[0].wall, "https/plain")
				b.ReportMetric(rates[1].processor/rates[0].processor, "mutual/plain-cpu")
				b.ReportMetric(rates[2].processor/rates[0].processor, "https/plain-cpu")
			}
		})
	}
}
