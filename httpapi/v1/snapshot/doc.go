// Package snapshot is the route of backups: it streams the state of the cluster to a client, and receives a backup that
// is to be restored. If a backup can't be sent to its end, the package breaks the connection, and the last bytes of the
// backup are missing: so the client can tell that it is not complete. Memory does not grow with the size of a backup
// that is sent or received.
//
// It knows neither the format nor the state: cluster/backup does. Package v1 serves its routes. It imports cluster,
// cluster/backup, cluster/outcome, fsm and httpapi/exchange.
//
//   - snapshot.go: the two routes
package snapshot
