// Command mutants measures how much the tests see. It puts faults into a copy of the source, runs
// the tests that should catch each, and prints a table: the fault, the test that failed, the time
// that it took. A listed fault that no test catches is a gap in the tests, and fails the run.
//
//	go run ./test/mutants [-only TEXT]                          the listed faults
//	go run ./test/mutants -random COUNT [-seed N] [-numbers 7,20-40] [FOLDER…]     random ones
//
// The listed faults are in testdata, one file for each part of the program. A fault is a piece
// of a patch without line numbers: the changed text with its context, which must be in its file
// exactly once. So a fault stays true when code moves, and is an error once the code that it
// breaks is gone. Random faults negate a condition, move a comparison or a constant by one, or
// drop a statement, as a seed chooses. Gremlins (v0.6.0) does not replace these: it drops no statements, moves
// no constants, draws no sample, and runs only the tests of the package that it changes. It also builds the tests
// again for each fault: on a busy machine with two cores, 26 faults in store/folder took 8 minutes.
//
// A build takes longer than most tests. So one build of a package's tests serves for all of its
// faults: a function with a fault stands beside the one without it, under another name, and the
// environment selects which of them is in force.
//
// The quickest tests of a package run first, and a fault that one of them catches costs no
// more. What survives the tests of a package below store meets store's tests. A fault may take
// a few times the processor time that the tests take without it, so that a busy machine is no
// reason to call a fault caught. A run can be made in parts (-numbers), and several faults can be
// tested at a time (-parallel).
//
// The tree itself does not change. No package imports this one.
//
// Files, in reading order:
//
//   - main.go: the command line, the runs, and the table
//   - faults.go: the listed faults: their form, and how one is applied
//   - random.go: the random faults
//   - combine.go: a file that has many faults, one of which is in force
//   - run.go: the copy of the tree, builds, and runs of tests
package main
