// Package hostile keeps the list of hostile inputs: what strangers and broken clients may
// send to any port of a node, by name. Each list is a file of testdata, and belongs to one
// test, which sends its inputs and holds the node to these promises: it does not crash,
// no status 5xx is caused by input, the state stays as it is, memory is bounded.
//
// A test begins a list with Begin and runs each input with Case. A case that is not on its
// list fails the test, and so does one on the list that did not run. TestHostileInputs of
// the root counts the lists. Only tests import it; it imports no
// package of Signalbox.
//
//   - hostile.go: List, the cases of one test; Lists, all lists.
//   - handshakes.go: what strangers send first to a port with TLS.
package hostile
