// Package cells holds the rule by which names and session ids belong to cells: clusters that share the names of one
// service. A cell has the names that begin with one of its prefixes; the longest prefix decides. The nodes of a cell
// draw its number into the ids of their sessions, so that an id tells its cell.
//
// # What callers can rely on
//
//  1. New refuses a list in which a name would belong to no cell, or to two. Otherwise every name has one cell.
//  2. The cell of an id is decided without a request. Ids that no node has drawn belong to no cell.
//
// It reads no file and sends no request. A Map never changes, so it is safe for concurrent use.
//
// Packages cluster, client and httpapi/proxy and the command line call it. It is in the client's module for these
// packages alone: other programs use client.Cells, and its names may change in any release.
//
//   - cells.go: Cell, Map, and the numbers in ids
package cells
