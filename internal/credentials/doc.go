// Package credentials gives the requests of a client its token and its certificate, and
// decides which certificates of nodes it trusts.
//
// # What callers can rely on
//
//  1. The token goes to the given addresses alone: no redirect takes it elsewhere. New
//     refuses an address of plain HTTP on another machine, where everybody on the way
//     could read the token, unless Config.Plain allows it.
//  2. No error and no warning contains the token.
//  3. Each file is read by New, which fails if it can't, and again before a request once
//     it has changed. A file that can't be read any more leaves the values from before in
//     use, with a warning.
//  4. A reply 401 makes the token's file be read again. If it has another token, the
//     request is repeated with that one, once: 401 says that it had no effect.
//
// Packages client/internal/calls and cmd/signalbox/internal/target call it. It decides
// nothing about nodes and retries. It starts no goroutine; a request costs one stat of
// each file. Everything is safe for concurrent use.
//
//   - credentials.go: Config, and the transport that adds the token to requests
//   - file.go: values read from files, and again when these change
package credentials
