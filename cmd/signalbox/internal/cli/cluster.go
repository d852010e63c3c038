package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/client/credentials"
)

// ClusterFlags are the flags that name a cluster. They have their values once the flags are parsed.
type ClusterFlags struct {
	Addresses []string           // base URLs of the nodes
	flags     credentials.Config // from the flags alone
	lookup    func(string) (string, bool)

	cells   string     // path of --cells; "": one cluster
	cell    int        // the number after --cell; 0: the cell of the name or of the session
	cellMap *cells.Map // the file of --cells, once it is read

	number  int              // of the cell whose nodes are Addresses; 0: no cell, or all cells
	several []signalbox.Cell // all cells, if AboutNames found that several have such names; else nil

	set               *pflag.FlagSet
	context, contexts string // name of a context, and path of the file of contexts
	contextRead       bool   // the context was read, or no context applies
	usedContext       string // name of the context in use, or ""
	tokenOfContext    bool   // the token's file comes from the context
}

// tokenVariable has the token, unless a file has it. earlierVariable may have the token too. A number in
// earlierVariable is not a token, because run and elect set this variable to the fencing token for their command.
const (
	tokenVariable   = "SIGNALBOX_API_TOKEN"
	earlierVariable = "SIGNALBOX_TOKEN"
)

// defaultAddresses is the address of "signalbox dev".
var defaultAddresses = []string{"http://127.0.0.1:8701"}

// plainFlag allows the token to be sent over plain HTTP. nodeVariable does not allow it, because an image sets that
// variable only for its node, and not for other programs in the image.
const (
	plainFlag    = "send-token-over-http"
	nodeVariable = "SIGNALBOX_INSECURE_HTTP"
)

// AddClusterFlags adds the flags of a cluster. The token has no flag; lookup reads its variable. The caller applies the
// variables of the flags.
func AddClusterFlags(flags *pflag.FlagSet, lookup func(string) (string, bool)) *ClusterFlags {
	f := &ClusterFlags{lookup: lookup, set: flags}
	flags.StringSliceVar(&f.Addresses, "addr", defaultAddresses, "the nodes' base URLs; each run tries them in an order drawn at random")
	flags.StringVar(&f.flags.TokenFile, "token-file", "", "file with the token for a cluster that asks for one; default: the token in "+tokenVariable)
	AddCAFlag(flags, &f.flags.CA)
	flags.StringVar(&f.flags.Cert, "cert", "", "PEM file with a client certificate, which nodes may take instead of a token")
	flags.StringVar(&f.flags.Key, "key", "", "PEM file with the key of --cert")
	flags.BoolVar(&f.flags.Plain, plainFlag, false, "send the token to http:// addresses on other machines too, where others may read it on its way")
	flags.StringVar(&f.context, "context", "", "name of a cluster in the file of --contexts; default: the cluster that the file names, unless --addr is given; on the command line, --context overrides the variables of the other flags")
	flags.StringVar(&f.contexts, "contexts", "", "TOML file with addresses and credentials of clusters, by name; default: "+shownContexts)
	f.addCells(flags)
	return f
}

// AddCAFlag adds only --ca, for a subcommand without a token.
func AddCAFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "ca", "", "PEM file with the authorities of the nodes' certificates, for https:// addresses; default: the system's authorities")
}

// Client returns a client's configuration with addresses and credentials. Its errors name the flags.
func (f *ClusterFlags) Client() (signalbox.Config, error) {
	if err := f.checkCells(); err != nil {
		return signalbox.Config{}, err
	}
	if err := f.fromContext(); err != nil {
		return signalbox.Config{}, err
	}
	chosen := f.credentials()
	cfg := signalbox.Config{Addresses: f.Addresses, Cell: f.number, Token: chosen.Token, TokenFile: chosen.TokenFile, InsecureHTTP: chosen.Plain,
		CA: chosen.CA, CertFile: chosen.Cert, KeyFile: chosen.Key}
	if len(f.Addresses) == 0 {
		return cfg, errors.New("--addr: give at least one")
	}
	if _, err := signalbox.New(cfg); err != nil { // New starts no goroutine
		err = named(err)
		if _, set := f.lookup(nodeVariable); set && strings.HasPrefix(err.Error(), "--"+plainFlag+":") {
			err = fmt.Errorf("%w; %s is a setting of nodes: use SIGNALBOX_SEND_TOKEN_OVER_HTTP", err, nodeVariable)
		}
		return cfg, err
	}
	return cfg, nil
}

// Environment returns variables, NAME=VALUE, with which another program finds the same cluster. It empties variables
// with credentials of another cluster. Call it after Client.
func (f *ClusterFlags) Environment() []string {
	var addresses []string
	for _, address := range f.Addresses {
		if address = ShownAddress(address); address != "" {
			addresses = append(addresses, address)
		}
	}
	variables := []string{Variable("addr") + "=" + strings.Join(addresses, ",")}
	if inherited, _ := f.lookup(Variable("cells")); f.cells != "" || inherited != "" { // set it even if empty, since this variable wins over the addresses
		file := f.cells
		if absolute, err := filepath.Abs(file); file != "" && err == nil {
			file = absolute // the other program may have another working directory
		}
		variables = append(variables, Variable("cells")+"="+file)
	}
	context := Variable("context")
	if name, _ := f.lookup(context); name != "" && name != f.usedContext { // the inherited context has credentials of another cluster
		variables = append(variables, context+"=")
	}
	chosen := f.credentials()
	for _, v := range [][2]string{{tokenVariable, chosen.Token}, {Variable("token-file"), chosen.TokenFile}} {
		if inherited, _ := f.lookup(v[0]); inherited != "" && strings.TrimSpace(inherited) != v[1] {
			variables = append(variables, v[0]+"=")
		}
	}
	return variables
}

// Name returns the name of the cluster's context, or else its addresses. Call it after Client.
func (f *ClusterFlags) Name() string {
	if f.usedContext != "" {
		return "the context " + f.usedContext
	}
	var shown []string
	for _, address := range f.Addresses {
		shown = append(shown, ShownAddress(address))
	}
	return strings.Join(shown, ",")
}

// ShownAddress returns an address without its user part, which is secret. It returns "" if the address is not a URL.
func ShownAddress(address string) string {
	if !strings.Contains(address, "@") {
		return address
	}
	base, err := parse(address)
	if err != nil {
		return ""
	}
	base.User = nil
	return base.String()
}

// parse parses an address, which may be only host:port.
func parse(address string) (*url.URL, error) {
	return credentials.ParseAddress(strings.TrimRight(address, "/"))
}

// HTTPClient returns an HTTP client with credentials for the addresses. Its errors name the flags.
func HTTPClient(chosen credentials.Config, addresses []*url.URL) (*http.Client, error) {
	transport, err := credentials.New(chosen, addresses, http.DefaultTransport.(*http.Transport).Clone())
	if err != nil {
		return nil, named(err)
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// credentials adds the token in the environment to the credentials of the flags. This token replaces the token file of
// a context, unless --context is on the command line.
func (f *ClusterFlags) credentials() credentials.Config {
	cfg := f.flags
	token, _ := f.lookup(tokenVariable)
	if token = strings.TrimSpace(token); token == "" {
		earlier, _ := f.lookup(earlierVariable)
		if earlier = strings.TrimSpace(earlier); strings.Trim(earlier, "0123456789") != "" {
			token = earlier
		}
	}
	tokenReplacesFile := f.tokenOfContext && !onCommandLine(f.set.Lookup("context"))
	if (cfg.TokenFile == "" || tokenReplacesFile) && token != "" {
		cfg.Token, cfg.TokenFile = token, ""
	}
	return cfg
}

// named adds the name of the flag to an error in the configuration.
func named(err error) error {
	flag := "--addr"
	var wrong *credentials.FieldError
	if errors.As(err, &wrong) {
		flag = map[string]string{"Token": tokenVariable, "TokenFile": "--token-file", "CA": "--ca", "Cert": "--cert",
			"Plain": "--" + plainFlag}[wrong.Field]
	}
	return fmt.Errorf("%s: %s", flag, strings.TrimPrefix(err.Error(), "signalbox: "))
}
