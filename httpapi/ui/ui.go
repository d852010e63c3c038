package ui

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

//go:embed static
var static embed.FS

// contentTypes has a row for each kind of file in static.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// guards are the headers of each file. Scripts, styles and calls come from this node alone;
// no script may make markup of a text, and no other page may frame this one.
var guards = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
}

const (
	page  = "/ui/"
	index = "index.html"

	reference = "api.html" // at /ui/api
)

// UI serves the console.
type UI struct {
	x     *exchange.Exchange
	files map[string][]byte // by name
}

// New returns the console. It fails for a file of an unknown kind.
func New(x *exchange.Exchange) (*UI, error) {
	u := &UI{x, map[string][]byte{}}
	return u, fs.WalkDir(static, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if contentTypes[path.Ext(name)] == "" {
			return &fs.PathError{Op: "serve", Path: name, Err: fs.ErrInvalid}
		}
		u.files[path.Base(name)], err = static.ReadFile(name)
		return err
	})
}

// Routes returns the routes, which need no token: the files are the same for everyone.
func (u *UI) Routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("GET", "/ui", u.redirect),
		exchange.On("GET", page, func(c echo.Context) error { return u.send(c, index) }),
		exchange.On("GET", page+"api", func(c echo.Context) error { return u.send(c, reference) }),
		exchange.On("GET", page+":file", func(c echo.Context) error { return u.send(c, c.Param("file")) }),
	}
}

// FromRoot is a middleware for the path /. It sends a browser to the console.
func (u *UI) FromRoot(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if reads && strings.Contains(r.Header.Get("Accept"), "text/html") {
			return u.redirect(c)
		}
		return next(c)
	}
}

func (u *UI) redirect(c echo.Context) error {
	u.x.Replies.SetHighestIndex(c)
	c.Response().Header().Set("Location", page)
	return u.x.Replies.Send(c, http.StatusFound, exchange.PlainText, []byte("The console is at "+page))
}

func (u *UI) send(c echo.Context, name string) error {
	file, found := u.files[name]
	if !found {
		return exchange.ErrUnknownRoute
	}
	u.x.Replies.SetHighestIndex(c)
	for header, value := range guards {
		c.Response().Header().Set(header, value)
	}
	return u.x.Replies.Send(c, http.StatusOK, contentTypes[path.Ext(name)], file)
}
