// Package strictjson reads JSON whose every byte has a meaning. Check refuses a
// document that encoding/json would accept silently or repair: a member given
// twice, half of a surrogate pair, text that is not UTF-8, bytes after the document.
// Rules loosen it for dialects of other services. A Value then reads the checked bytes in
// place, without building a tree.
//
// Values must come from a document that Check passed; their methods rely on it and
// may panic otherwise. The package does not know any request or field; it does not
// write JSON. Packages exchange and v1 and the dialects call it; it imports no package
// of ours. Functions keep no state, so they may run at once; a Value shares the
// document's bytes.
//
// Files:
//   - strictjson.go: Check, its Rules and its Fault; Value, which reads a checked document
package strictjson
