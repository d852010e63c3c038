// Package declare makes semaphores that a file names. The file has the form of throttle's
// configuration, so that users of throttle can start a node with the file that they have. The
// settings of this service are further keys of a table:
//
//	[semaphores]
//	A = 42
//	B = { max = 3, level = 1 }
//	C = { max = "none", groups = "request", per_group = 1 }
//
//	[logging.stderr]
//	level = "INFO"
//
// Declare creates missing semaphores and sets semaphores that differ, through the log like
// any other command. It removes no semaphore, and keeps the offsets that up and down
// have left. All nodes may declare the same file: a repeat has no effect.
//
// cmd opens a Declaration before anything else, so that a bad file ends the start, and
// runs Keep while the node runs. It imports cluster, cluster/outcome and fsm. The package
// serves no HTTP. A Declaration is safe for concurrent use.
//
// Files:
//   - declaration.go: Declaration, the file of one node, declared again at each reload
//   - apply.go: Declare, which brings the state in line with a file
//   - file.go: File, and how it is read
//   - settings.go: the table of one semaphore
package declare
