// Package snapshot is the route of backups: it streams the state of the cluster to a client,
// and takes a backup to be restored. A reply that ends early is no whole backup: its connection
// breaks, and its last bytes are missing. Memory does not grow with the size of a backup that
// is sent or that arrives.
//
// It knows neither the format nor the state: cluster/backup does. Package v1 serves its routes.
// It imports cluster, cluster/backup, cluster/outcome, fsm and httpapi/exchange.
//
//   - snapshot.go: the two routes
package snapshot
