//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/internal/certs"
)

// prepare makes a separate semaphore for each connection.
func prepare(b *testing.B, base string, connections int, client *http.Client) {
	b.Helper()
	defer client.CloseIdleConnections()
	for c := range connections {
		request, err := http.NewRequest(http.MethodPut, fmt.Sprintf("%s/v1/semaphores/own-%d", base, c), strings.NewReader(`{"permits":0}`))
		must(b, err)
		answer, err := client.Do(request)
		must(b, err)
		answer.Body.Close()
		if answer.StatusCode >= 300 {
			b.Fatalf("semaphore %d: %s", c, answer.Status)
		}
	}
}

// benchNode is a node with its HTTP address.
type benchNode struct {
	*node
	address, peerAddress string
}

// startTrio starts three nodes with changed configurations. It returns the HTTP addresses of the leader and of a
// follower.
func startTrio(b *testing.B, change ...func(c *config)) (leader, follower string) {
	b.Helper()
	nodes := startNodes(b, change...)
	return nodes[0].address, nodes[1].address
}

// startNodes starts three nodes with changed configurations, and returns them, the leader first.
func startNodes(b *testing.B, change ...func(c *config)) []benchNode {
	b.Helper()
	d := devFlags{nodes: 3, port: freePorts(b, 0, 1, 2, peerOffset, peerOffset+1, peerOffset+2)}
	var peers []cluster.Peer
	for i := range d.nodes {
		peers = append(peers, cluster.Peer{ID: fmt.Sprintf("n%d", i+1), Address: fmt.Sprintf("127.0.0.1:%d", d.port+peerOffset+i)})
	}
	fatal := make(chan error, d.nodes)
	var nodes []*node
	b.Cleanup(func() { stopAll(nodes) })
	var started []benchNode
	for i, peer := range peers {
		c := defaultConfig()
		c.nodesHere, c.nodeID, c.peers, c.peerAddress, c.data = d.nodes, peer.ID, peers, peer.Address, b.TempDir()
		c.httpAddress = fmt.Sprintf("127.0.0.1:%d", d.port+i)
		for _, f := range change {
			f(&c)
		}
		var n *node
		var err error
		pprof.Do(b.Context(), pprof.Labels("node", peer.ID), func(ctx context.Context) { // for profiles
			n, err = startNode(ctx, c, hclog.NewNullLogger(), firstTo(fatal))
		})
		must(b, err)
		nodes = append(nodes, n)
		started = append(started, benchNode{n, c.httpAddress, c.peerAddress})
	}
	must(b, d.ready(b.Context(), nodes, fatal))
	for i := range started {
		if status := started[i].cluster.Status(); status.Leader == status.Node {
			started[0], started[i] = started[i], started[0]
			return started
		}
	}
	b.Fatal("no leader among the nodes")
	return nil
}

// BenchmarkLeader makes the writes of 256 connections through the leader, for a profile: each
// goroutine of a node has its id as the label "node". The benchmark's log names the leader.
func BenchmarkLeader(b *testing.B) {
	nodes := startNodes(b)
	prepare(b, "http://"+nodes[0].address, 256, &http.Client{})
	b.Logf("the leader is %s", nodes[0].cluster.Status().Node)
	load := loader{name: "leader", addresses: []string{nodes[0].address}, operations: 1, request: up}
	for b.Loop() {
		b.ReportMetric(load.run(b, 256).wall, "operations/s")
	}
}

// BenchmarkSecured compares three kinds of writes: with a token on a leader whose peers have mutual TLS, over HTTPS, and
// on a leader without either. They use keep-alive connections, and each figure is a ratio within one run. All nodes and
// clients share this machine, so both ends of each TLS connection count.
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
