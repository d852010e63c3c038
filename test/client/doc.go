// Package client tests the Go client against real nodes: one node in memory (test/clienttest), or a cluster on a network
// in memory (test/memnet), in virtual time, with faults between the client and its nodes. It has only tests. They are not
// beside the client, because the client's module must not need the server's.
//
// Tests that reply to the client themselves, without a node, are in the packages of the client.
package client
