// Package chaos causes faults in real processes and checks what their clients saw. It has only tests, behind the build
// tag chaos: nodes of the program, each with a data folder and, where the system permits it, a network namespace;
// clients in Go, over HTTP and in the dialects; and a schedule of faults that depends on a seed. test/simulation does
// the same in virtual time.
//
// A run is one fault, or a pair of faults, while clients work on the run's semaphores. At its end the fault heals, and
// the three layers of test/checks are checked. Then no request may be left, and all nodes must agree. A run is void,
// and fails, if too few operations are done before the fault, or if the last operations fail.
//
// The program is built with hooks (testdata/hooks), which make the synced writes of a node hang or fail, and with
// frequent snapshots. "make chaos" runs it and prints a report. A failure prints the seed, the timeline and the folder
// of histories and logs.
package chaos
