package cli

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
)

// fencing is a fencing token, which run puts into the variable that earlier held the token.
const fencing = "18446744073709551615"

// flags parses a command line. token is the variable's value.
func flags(t *testing.T, token string, arguments ...string) *ClusterFlags {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := AddClusterFlags(set, func(name string) (string, bool) {
		if variable := map[bool]string{true: "SIGNALBOX_TOKEN", false: "SIGNALBOX_API_TOKEN"}[token == fencing]; name != variable {
			return "", false
		}
		return token, token != ""
	})
	must(t, set.Parse(arguments))
	return f
}

// TestTokens: a client sends the token of the file, or else the token of the variable, unless the variable has the
// fencing token that run has set for its command.
func TestTokens(t *testing.T) {
	sent := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("of-the-file\n"), 0o600))
	for _, c := range []struct {
		name, variable string
		arguments      []string
		want           string
	}{
		{"none", "", nil, ""},
		{"a variable", "of-the-variable\n", nil, "Bearer of-the-variable"},
		{"a fencing token", fencing, nil, ""},
		{"a file", "", []string{"--token-file", file}, "Bearer of-the-file"},
		{"a file and a variable", "of-the-variable", []string{"--token-file", file}, "Bearer of-the-file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := flags(t, c.variable, append(c.arguments, "--addr", server.URL+"/")...)
			cfg, err := f.Client()
			must(t, err)
			client, err := signalbox.New(cfg)
			must(t, err)
			if _, err := client.Get(t.Context(), "db"); err == nil || sent != c.want {
				t.Errorf("the Go client sends %q, %v", sent, err)
			}
		})
	}
}

// An error names the flag that is wrong, and never the token.
func TestErrorsNameTheFlag(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		name, variable string
		arguments      []string
		words          []string
	}{
		{"no address", "", []string{"--addr="}, []string{"--addr", "at least one"}},
		{"no URL", "", []string{"--addr", "http://n1,ftp://n2"}, []string{"--addr", "ftp://n2"}},
		{"no URL, with a password", "", []string{"--addr", "http://me:s3cret@n1:port"}, []string{"--addr"}},
		{"a query, with a password", "", []string{"--addr", "http://me:s3cret@n1?x=1"}, []string{"--addr", "n1?x=1"}},
		{"a file", "", []string{"--token-file", none}, []string{"--token-file", none}},
		{"a variable", "s3cret s3cret", nil, []string{"SIGNALBOX_API_TOKEN", "spaces"}},
		{"authorities", "", []string{"--ca", none}, []string{"--ca", none}},
		{"a certificate", "", []string{"--key", none}, []string{"--cert", "key"}},
		{"plain HTTP", "s3cret", []string{"--addr", "n1:8701"}, []string{"--send-token-over-http", "http://n1:8701", "https://"}},
		{"plain HTTP, a user", "", []string{"--addr", "http://s3cret@n1:8701"}, []string{"--send-token-over-http", "http://n1:8701", "https://"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := flags(t, c.variable, c.arguments...)
			_, err := f.Client()
			text := fmt.Sprint(err)
			for _, word := range c.words {
				if err == nil || !strings.Contains(text, word) || strings.Contains(text, "s3cret") || strings.Contains(text, "signalbox:") {
					t.Errorf("%q, wanted %q", text, word)
				}
			}
		})
	}
	if _, err := flags(t, "s3cret", "--addr", "n1:8701", "--send-token-over-http").Client(); err != nil {
		t.Error(err)
	}
}

// TestVariableOfNodes: the variable of the flag --insecure-http, which a node's image sets, does not allow a token over
// plain HTTP. The refusal names the flag that allows it.
func TestVariableOfNodes(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := AddClusterFlags(set, func(name string) (string, bool) {
		value := map[string]string{"SIGNALBOX_TOKEN": "s3cret", "SIGNALBOX_INSECURE_HTTP": "true"}[name]
		return value, value != ""
	})
	must(t, set.Parse([]string{"--addr", "n1:8701"}))
	if _, err := f.Client(); err == nil || !strings.Contains(err.Error(), "SIGNALBOX_INSECURE_HTTP is a setting of nodes: use SIGNALBOX_SEND_TOKEN_OVER_HTTP") {
		t.Error(err)
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err  error
		hint string
	}{
		{signalbox.ErrUnauthenticated, "--token-file or SIGNALBOX_API_TOKEN"},
		{signalbox.ErrForbidden, "scope and prefixes"},
		{x509.UnknownAuthorityError{}, "--ca"},
		{x509.HostnameError{Certificate: &x509.Certificate{}}, "that the node's certificate names"},
		{x509.CertificateInvalidError{Cert: &x509.Certificate{NotAfter: time.Unix(1e9, 0).UTC()}, Reason: x509.Expired}, "node's certificate ended at 2001-09-09T01:46:40Z"},
		{x509.CertificateInvalidError{Cert: &x509.Certificate{IsCA: true, NotAfter: time.Unix(1e9, 0).UTC()}, Reason: x509.Expired}, "authority ended at 2001-09-09T01:46:40Z"},
		{x509.CertificateInvalidError{Cert: &x509.Certificate{NotBefore: time.Unix(1e10, 0).UTC()}, Reason: x509.Expired}, "valid from 2286-11-20T17:46:40Z"},
		{&signalbox.Error{Code: "history-gone"}, "events --last 1000"},
		{errors.New("other"), ""},
	} {
		wrapped := fmt.Errorf("call: %w", c.err)
		got := Explain(wrapped)
		var advice *Advice
		if !errors.Is(got, c.err) || got.Error() != wrapped.Error() || errors.As(got, &advice) != (c.hint != "") || advice != nil && !strings.Contains(advice.Next, c.hint) {
			t.Errorf("%v, %+v", got, advice)
		}
		if again := Explain(got); again != got {
			t.Errorf("explained twice: %v", again)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
