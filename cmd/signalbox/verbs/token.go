package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/httpapi/access"
)

func newToken() *cobra.Command {
	command := &cobra.Command{
		Use:   "token",
		Short: "Make a token for a client",
		Args:  cli.Arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return cli.UsageError(errors.New("token needs new"))
		},
	}
	command.AddCommand(newTokenNew())
	return command
}

// tokenOptions are the flags of "token new".
type tokenOptions struct {
	scopes, prefixes                []string
	sessions, leases, waiting, rate int64
	into, appendTo, note            string
	keep                            bool
}

func newTokenNew() *cobra.Command {
	var o tokenOptions
	var token, block string
	command := &cobra.Command{
		Use:   "new NAME",
		Short: "Draw a token of 256 bits",
		Long: "Draw a token of 256 bits. The first line is the token, for the client; the rest is its block of the file\n" +
			"that serve --tokens reads, which has a hash of it alone. NAME is the client's: sessions belong to it, and a\n" +
			"client certificate of this common name stands for the same client. Several tokens of one name work at the\n" +
			"same time, so that one can be replaced by the next.",
		Example: "  signalbox token new ci --scope use --prefix ci/\n" +
			"  signalbox token new admin --scope admin --token-file admin.token --append tokens.toml",
		Args: cli.Arguments(1, 1),
		PreRunE: func(_ *cobra.Command, arguments []string) (err error) {
			token, block, err = access.NewToken(o.block(arguments[0]))
			return named(err)
		},
		RunE: func(command *cobra.Command, _ []string) error { return o.run(command, token, block) },
	}
	o.add(command.Flags())
	return command
}

func (o *tokenOptions) add(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringSliceVar(&o.scopes, "scope", []string{"use"}, "metrics (GET /metrics alone), read, use or admin; each includes the scopes before it")
	flags.StringSliceVar(&o.prefixes, "prefix", nil, "beginning of the names that the client may use; may be repeated; default: every name")
	flags.Int64Var(&o.sessions, "sessions", 0, "the most sessions of the client; 0: no limit")
	flags.Int64Var(&o.leases, "leases", 0, "the most leases of the client; 0: no limit")
	flags.Int64Var(&o.waiting, "waiting", 0, "the most waiting requests of the client; 0: no limit")
	flags.Int64Var(&o.rate, "requests-per-second", 0, "the most requests a second that a node takes from the client; 0: no limit")
	flags.StringVar(&o.into, "token-file", "", "write the token to this new file, and don't print it")
	cli.WithoutVariable(flags, "token-file") // its variable names the token that clients send
	flags.StringVar(&o.appendTo, "append", "", "append the block to this file, and don't print it")
	flags.StringVar(&o.note, "note", "", "print this line once the token is drawn, such as the way to its file")
	flags.BoolVar(&o.keep, "keep", false, "draw no token if --token-file exists")
}

// run appends the token's block, then prints the token or writes it: a failure leaves no token unknown to the nodes.
func (o *tokenOptions) run(command *cobra.Command, token, block string) error {
	if _, err := os.Lstat(o.into); o.into != "" && err == nil {
		if o.keep {
			return nil
		}
		return fmt.Errorf("--token-file: %s is there already: give another file, or --keep", o.into)
	}
	if o.appendTo != "" {
		if err := appendBlock(o.appendTo, "\n"+block); err != nil {
			return fmt.Errorf("--append: %w", err)
		}
		block = ""
	}
	if o.into != "" {
		err := writeNew(o.into, token+"\n")
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		token = ""
	} else {
		token += "\n"
	}
	if o.note != "" {
		block += o.note + "\n"
	}
	_, err := fmt.Fprint(command.OutOrStdout(), token, block)
	return err
}

func (o *tokenOptions) block(name string) access.Block {
	b := access.Block{Name: name, Scopes: o.scopes}
	if o.prefixes != nil {
		b.Prefixes = &o.prefixes
	}
	for _, limit := range []struct {
		value  int64
		target **int64
	}{{o.sessions, &b.Sessions}, {o.leases, &b.Leases}, {o.waiting, &b.Waiting}, {o.rate, &b.RequestsPerSecond}} {
		if limit.value != 0 {
			*limit.target = &limit.value
		}
	}
	return b
}

// named returns the error of a block with the flag, or NAME, in place of the block's key.
func named(err error) error {
	if err == nil {
		return nil
	}
	key, reason, _ := strings.Cut(err.Error(), ": ")
	flag := map[string]string{"name": "NAME", "scopes": "--scope", "prefixes": "--prefix"}[key]
	return fmt.Errorf("%s: %s", cmp.Or(flag, "--"+strings.ReplaceAll(key, "_", "-")), reason)
}

// appendBlock appends a block to a file, and creates the file if it does not exist. It refuses a block with which a node
// could not start, for example because another token of the same name has other rights; the file then stays as it is.
func appendBlock(path, text string) error {
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := access.Check(string(before) + text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}

// writeNew creates a file. It fails if the file exists.
func writeNew(path, text string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already", path)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}
