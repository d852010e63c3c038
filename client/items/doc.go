// Package items is the part of the Go client for items: small named values that a session may
// hold. The end of the session releases its items, so that an item can name a leader:
//
//	c, err := client.New(client.Config{Addresses: []string{"http://n1:8701"}})
//	…
//	defer c.Close(ctx)
//	led, err := items.New(c).Elect(ctx, "svc/leader", []byte("10.0.0.7:80"), client.SessionOptions{})
//	…
//	defer led.Resign(ctx)
//	work, stop := led.Context(ctx) // ends when the leadership is lost
//
// Calls are sent and fail as package client describes, with the further errors below.
//
// The package imports package client and its internal packages. Programs of users call it,
// and the verbs of cmd/signalbox.
//
//   - items.go: New, reads and changes of items
//   - elect.go: leaders: one session holds the item, and the others wait
package items
