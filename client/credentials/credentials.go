package credentials

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Config has the credentials of a client, and the authorities that it trusts. The zero value has no credentials and
// trusts the system's authorities.
type Config struct {
	Token     string // sent with every request
	TokenFile string // contains the token, instead of Token
	CA        string // a PEM file with the authorities of the nodes' certificates
	Cert, Key string // PEM files with the client's own certificate and its key
	Plain     bool   // allows sending the token to other machines over plain HTTP

	// Warn is called with the error if a changed file can't be read; it may be nil.
	Warn func(error)
}

// rawZone matches an IPv6 address whose zone is not escaped.
var rawZone = regexp.MustCompile(`(\[[0-9A-Fa-f:.]+%)([^\]]+)\]`)

// ParseAddress parses the address of a node: a URL, or host:port for http://host:port. The zone of an IPv6 address may
// be escaped as in a URL, [fe80::1%25eth0], or not, [fe80::1%eth0].
func ParseAddress(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	if at := rawZone.FindStringSubmatchIndex(text); at != nil {
		if zone := text[at[4]:at[5]]; !strings.HasPrefix(zone, "25") || zone == "25" {
			text = text[:at[4]] + "25" + text[at[4]:]
		}
	}
	return url.Parse(text)
}

// FieldError is an error of a Config.
type FieldError struct {
	Field string // the name of the field of Config
	Err   error
}

// Error returns the reason, without the field.
func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *FieldError) Unwrap() error { return e.Err }

// HasTLS reports whether New has to make a separate transport for certificates.
func (c *Config) HasTLS() bool { return c.CA != "" || c.Cert != "" || c.Key != "" }

func (c *Config) hasToken() bool { return c.Token != "" || c.TokenFile != "" }

// None is what Source returns for a Config without credentials.
const None = "no token"

// Source describes, for people, where the token comes from.
func (c *Config) Source() string {
	switch {
	case c.TokenFile != "":
		return "the token in " + c.TokenFile
	case c.Token != "":
		return "the token that it was given"
	case c.Cert != "":
		return "the certificate in " + c.Cert
	}
	return None
}

// check returns an error for settings that contradict each other.
func (c *Config) check() error {
	switch {
	case c.Token != "" && c.TokenFile != "":
		return &FieldError{"TokenFile", errors.New("there are a token and a file with a token: give one of them")}
	case (c.Cert == "") != (c.Key == ""):
		return &FieldError{"Cert", errors.New("a certificate and its key belong together: give both files, or neither")}
	case c.Token != "":
		return checkToken(c.Token)
	}
	return nil
}

type transport struct {
	origins map[string]bool            // true: requests to this origin get the token
	token   *followed[string]          // nil: requests get no token
	resend  bool                       // the token may change, so a request may be repeated
	tls     *followed[*http.Transport] // nil: base is used
	base    http.RoundTripper
}

// New returns a RoundTripper that adds the credentials to requests to the addresses. It returns base if there are no
// credentials. It reads the files, and sends no request.
//
// For an address of another machine in plain HTTP, New fails unless Config.Plain allows the token there, or the same
// address is listed with https:// too; then the plain address gets no token. A user name in an address counts as a
// token that the caller sends. Certificates need an *http.Transport as base, which New copies.
func New(cfg Config, addresses []*url.URL, base http.RoundTripper) (http.RoundTripper, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	t := &transport{origins: map[string]bool{}, resend: cfg.TokenFile != "", base: base}
	for _, address := range addresses {
		exposed := address.Scheme == "http" && !isThisMachine(address.Hostname()) && !cfg.Plain
		t.origins[origin(address)] = !exposed
		if exposed && (address.User != nil || cfg.hasToken() && !hasHTTPS(addresses, address)) {
			return nil, &FieldError{"Plain", fmt.Errorf("others could read the token on its way to http://%s: use https://, or allow plain HTTP", address.Host)}
		}
	}
	if !cfg.HasTLS() && !cfg.hasToken() {
		return base, nil
	}
	if cfg.HasTLS() {
		if err := t.readTLS(&cfg); err != nil {
			return nil, err
		}
	}
	if err := t.readToken(&cfg); err != nil {
		return nil, err
	}
	return t, nil
}

// readTLS makes a copy of the base transport with the certificates, and another copy each time the files change, so
// that new connections use the new certificates.
func (t *transport) readTLS(cfg *Config) (err error) {
	base, ok := t.base.(*http.Transport)
	if !ok {
		return &FieldError{"CA", errors.New("certificates can't be added to an HTTP client of the caller's: give it them itself")}
	}
	var files []string
	for _, path := range []string{cfg.CA, cfg.Cert, cfg.Key} {
		if path != "" {
			files = append(files, path)
		}
	}
	before := base
	t.tls, err = follow(func() (*http.Transport, error) {
		settings, err := readTLS(cfg)
		if err != nil {
			return nil, err
		}
		made := base.Clone()
		made.TLSClientConfig = settings
		before.CloseIdleConnections()
		before = made
		return made, nil
	}, cfg.Warn, files...)
	return err
}

func (t *transport) readToken(cfg *Config) (err error) {
	switch {
	case cfg.TokenFile != "":
		t.token, err = follow(func() (string, error) { return readToken(cfg.TokenFile) }, cfg.Warn, cfg.TokenFile)
	case cfg.Token != "":
		t.token, err = follow(func() (string, error) { return cfg.Token, nil }, nil)
	}
	return err
}

// origin returns the scheme, host and port of a URL. The token is sent only to the origins of the addresses.
func origin(u *url.URL) string { return u.Scheme + "://" + strings.ToLower(u.Host) }

// hasHTTPS reports whether a plain address is also listed with https://.
func hasHTTPS(addresses []*url.URL, plain *url.URL) bool {
	return slices.ContainsFunc(addresses, func(other *url.URL) bool {
		return other.Scheme == "https" && strings.EqualFold(other.Host, plain.Host)
	})
}

// isThisMachine reports whether a host name means this machine. It does not look the name up.
func isThisMachine(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// RoundTrip implements http.RoundTripper. After a reply 401 it repeats the request once if the token has changed.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token == nil || !t.origins[origin(r.URL)] {
		return t.present().RoundTrip(r)
	}
	token := t.token.get(false)
	response, err := t.send(r, r.Body, token)
	if err != nil || response.StatusCode != http.StatusUnauthorized || !t.resend {
		return response, err
	}
	another := t.token.get(true)
	if another == token {
		return response, nil
	}
	body := r.Body
	if body != nil && body != http.NoBody {
		if r.GetBody == nil {
			return response, nil // the body has been sent, and can't be sent again
		}
		if body, err = r.GetBody(); err != nil {
			return response, nil
		}
	}
	_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that the connection can be used again
	response.Body.Close()
	return t.send(r, body, another)
}

func (t *transport) send(r *http.Request, body io.ReadCloser, token string) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Body = body
	r.Header.Set("Authorization", "Bearer "+token)
	return t.present().RoundTrip(r)
}

// present returns the transport with the current certificates.
func (t *transport) present() http.RoundTripper {
	if t.tls == nil {
		return t.base
	}
	return t.tls.get(false)
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (t *transport) CloseIdleConnections() {
	if base, ok := t.present().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}
