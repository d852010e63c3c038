package httpapi

// RouteNames returns the routes of a handler, "METHOD /path", its dialects' too.
func (h *Handler) RouteNames() (names []string) {
	for _, r := range h.echo.Routes() {
		names = append(names, r.Method+" "+r.Path)
	}
	return names
}

// OpenRoute reports whether a path needs no token.
func OpenRoute(path string) bool { return open[path] }
