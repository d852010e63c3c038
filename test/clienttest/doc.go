// Package clienttest is a cluster for the tests of programs that use the Go client: one real
// node in the process of the test, with an empty state that lives in memory.
//
//	func TestJob(t *testing.T) {
//		cluster := clienttest.Start(t)
//		c := cluster.Client() // ends with the test
//		if _, _, err := c.Put(t.Context(), "db", client.Permits(2)); err != nil {
//			t.Fatal(err)
//		}
//		…
//
// It is the service itself, and no imitation: queues, tokens, expiry, refusals and the times
// of leases are as in production. Client.Get and package client/operator show and change
// its state: a test revokes a lease with Operator.Revoke, say. CutOff and Rejoin break the
// connections between the clients and the node.
//
// The node takes no port and no file: requests are HTTP over pipes in memory. So it also runs
// in a bubble of testing/synctest, where a lease of an hour expires in a moment. The bubble
// must contain Start and all clients. A program that makes its own connections to an address
// is tested with httptest.NewServer(cluster.Handler()), outside of a bubble.
//
// A test of how a program lives through elections and restarts of nodes needs real processes:
// "signalbox dev" runs three.
//
// Only tests call the package. It imports the packages of the server, which package client
// does not: programs that import client alone don't contain them. All methods are safe for
// concurrent use.
//
//   - cluster.go: Start, the clients, the node behind them
//   - pipes.go: connections in memory, and how they break
package clienttest
