// Package declare makes semaphores that a file names, in the form of throttle's
// configuration, so that its users can start a node with the file that they have:
//
//	[semaphores]
//	A = 42
//	B = { max = 3, level = 1 }
//
//	[logging.stderr]
//	level = "INFO"
//
// What is missing is made and what differs is set, through the log like any other
// command; nothing is ever removed, and what up and down have moved stays moved.
// All nodes may declare the same file: to say again what is there changes nothing.
//
// cmd opens a Declaration before anything else, so that a bad file ends the start,
// and runs Keep beside the node. It serves no HTTP; the gauges of declared
// semaphores are httpapi's.
package declare
