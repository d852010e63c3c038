package httpapi

import "github.com/signalbox/signalbox/cluster"

// The cluster's node is what this package asks for.
var _ Node = (*cluster.Node)(nil)
