// Package members is /v1/cluster: it shows the members of the cluster and changes them,
// hands over the leadership, and raises the feature level. Package v1 serves the routes.
// It imports exchange, strictjson, cluster and cluster/outcome.
// All of it is safe for concurrent use.
//
// Files:
//   - members.go: API, its routes, and their JSON
package members
