// Package credentials adds the token and the certificate of a client to its requests, and decides which certificates of
// nodes the client trusts.
//
// # What callers can rely on
//
//  1. The token is sent only to the given addresses: no redirect takes it elsewhere. New
//     refuses an address of plain HTTP on another machine, where everybody on the way
//     could read the token, unless Config.Plain allows it.
//  2. No error and no warning contains the token.
//  3. New reads each file, and fails if it can't. A request reads a file again if the file
//     has changed. If that fails, the values from before stay in use, with a warning.
//  4. After a reply 401 the token's file is read again. If it has another token, the
//     request is repeated once with that token, since 401 says that the request had no effect.
//
// It makes no decision about nodes and retries. It starts no goroutine; a request costs one stat of each file. All of it
// is safe for concurrent use.
//
// Packages client, client/internal/calls, client/internal/nodes, httpapi/proxy and the command line call it. It is in the
// client's module for these packages alone: other programs set client.Config, and its names may change in any release.
//
//   - credentials.go: Config, and the transport that adds the token to requests
//   - file.go: values read from files, and again when these change
package credentials
