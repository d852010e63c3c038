// Package reply reads the replies of the API: durations as members of JSON objects, and
// lists in pages.
//
// It belongs to package client and those above it, and keeps no state. It imports the
// standard library alone.
//
//   - reply.go: durations, and the pages of a list
package reply
