// Command signalbox runs nodes of a replicated semaphore service.
//
//	signalbox dev       several nodes in this process, to try things out
//	signalbox serve     one node of a cluster
//	signalbox run       a command, while permits of a semaphore are held
//	signalbox version
//	signalbox healthcheck
//
// Each subcommand has its file. Every flag may also be given as an environment
// variable. What is wrong with the flags, the ports or the data folder is told
// in one line on stderr, and the exit status is 1, but for run, which has statuses of
// its own.
//
// The package wires the others together, bottom up, and stops them in reverse
// order; it decides nothing about semaphores, Raft or HTTP.
package main
