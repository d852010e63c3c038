// Package apitest tests the HTTP API through its real router, over a state machine in
// memory or over a cluster of three nodes in virtual time. Only tests import it.
//
// Files:
//   - node.go: Node, a cluster node over a state machine and a clock that tests move
//   - api.go: API, which sends requests to a Handler, and Reply
//   - crowd.go: states with many semaphores, sessions and waiters
//   - wire.go: a Server on loopback, and raw bytes
//   - site.go: Site and Cluster, a dialect over one node or three
//   - scripts.go: the scripts that are tables of an API's contract
//   - script_replies.go: the requests of scripts, and checks of their replies
package apitest
