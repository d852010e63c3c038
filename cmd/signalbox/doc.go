// Command signalbox runs nodes of a replicated semaphore service.
//
//		signalbox dev       several nodes in this process, to try things out
//		signalbox serve     one node of a cluster
//		signalbox config    prints the settings of serve
//		signalbox proxy     sends requests to the clusters that share the names
//		signalbox run       a command, while permits of a semaphore are held
//		signalbox cert      makes the certificates of a cluster
//		signalbox backup    fetches a backup of a cluster
//	 signalbox restore   replaces the state of a cluster by a backup's state
//		signalbox inspect   reports what a backup or a data folder holds
//	 signalbox recover   makes a cluster from one folder after a majority is lost
//		signalbox token     makes a token for a client
//		signalbox ls, show, create, acquire, …: package verbs
//		signalbox version
//		signalbox healthcheck
//
// Every flag may also be given as an environment variable. An error in the flags, the ports or the data folder is one
// line on stderr. If it is known what to do next, a second line says so. The exit status is then 1; run and the verbs
// of package verbs have further statuses.
//
// The package starts the parts of a node from the bottom up, and stops them in reverse order. It makes no decision
// about semaphores, Raft or HTTP.
//
//   - main.go: signals, the command line, mistyped environment variables
//   - serve.go: the subcommands serve and config, and the flags of the log and of scheduled backups
//   - config.go: the configuration of one node, its defaults and checks
//   - addresses.go: lists of peers, host names, bound addresses
//   - limits.go: a flag for each limit; sizes; how many connections a node accepts
//   - descriptors_unix.go: the limit of open files
//   - descriptors_other.go: the same for systems without such a limit
//   - node.go: one running node, started bottom up and stopped top down; its scheduled backups
//   - certificates.go: certificates, which are read again when their files change
//   - access.go: the file of the tokens that requests need, and the audit log
//   - dialects.go: interfaces of other systems, and the file of declared semaphores
//   - proxy.go: the subcommand proxy
//   - dev.go: the subcommand dev, and its folder
//   - run.go: the subcommands run and elect; the work is in internal/hold, the flags of the cluster in internal/cli
//   - mcp.go: the subcommand mcp; the work is in internal/mcp
//   - inspect.go: the subcommands healthcheck and version
package main
