package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/httpapi/access"
)

// addAccess adds the flags of who may use the API.
func addAccess(flags *pflag.FlagSet, c *config) {
	flags.StringVar(&c.tokens, "tokens", "", "TOML file of the tokens that requests need, see signalbox token new; alike on all nodes")
}

// clients are the tokens of a node, which are read again at SIGHUP and when the file
// changes.
type clients struct {
	tokens *access.Tokens // nil without
	end    func()         // stops reading; blocks until that has ended
}

// openClients reads the file that --tokens names.
func openClients(c config, log hclog.Logger) (*clients, error) {
	if c.tokens == "" {
		return &clients{end: func() {}}, nil
	}
	tokens, err := access.Open(c.tokens)
	if err != nil {
		return nil, fmt.Errorf("--tokens: %w", err)
	}
	return &clients{tokens, followTokens(tokens, log)}, nil
}

// followTokens reads the file again until end is called.
func followTokens(tokens *access.Tokens, log hclog.Logger) (end func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tokens.Watch(ctx, hangups, func(err error) {
			if err != nil {
				log.Error("the file of tokens can't be used: the one before stays in use", "error", err)
				return
			}
			log.Info("the file of tokens was read again")
		})
	})
	return func() { // without signal.Stop: a SIGHUP from here on must not kill a node that stops
		cancel()
		running.Wait()
	}
}
