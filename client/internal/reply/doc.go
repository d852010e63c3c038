// Package reply reads the replies of the API: durations as members of JSON objects, and
// lists in pages.
//
// Package client and the packages above it use it. It keeps no state, and imports only the
// standard library.
//
//   - reply.go: durations, and the pages of a list
package reply
