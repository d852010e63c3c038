// Package ui is the console: a page at /ui/ that shows semaphores, sessions, items, nodes
// and events, and changes them, and one at /ui/api that shows the description of the API.
// docs/console.md is for its users.
//
// The files in static are sent as they are. The page uses the public API alone, with the
// token that its user gives it, so that it can do no more than that token; the package
// has no other way to the state. The policy in the header lets the page load and call
// its own node only. Package httpapi serves the routes. It imports exchange.
// All of it is safe for concurrent use.
//
// Files:
//   - ui.go: UI, its routes, the files, and the headers that guard them
package ui
