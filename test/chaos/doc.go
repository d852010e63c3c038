// Package chaos breaks real processes on purpose and checks what their clients saw. It has
// tests alone, behind the build tag chaos: nodes of the program, each with a data folder and,
// where the system permits it, a network namespace of its own; clients in Go, over HTTP and in the
// dialects; and a seeded schedule of faults. test/simulation does the same in virtual time.
//
// A run is one fault, or a pair, amid the work of the clients on semaphores of its own. At
// its end the fault heals, and the three layers of test/checks are checked. All requests must
// then be over, and all nodes agree. A run is void, and fails, if too few operations are done
// before the fault, or if the last ones fail.
//
// The program is built with hooks (testdata/hooks), by which the synced writes of a node hang or
// fail, and with frequent snapshots. "make chaos" runs it and prints a report; a failure prints the
// seed, the timeline and the folder of histories and logs.
package chaos
