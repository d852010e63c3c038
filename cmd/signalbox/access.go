package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/audit"
)

// addAccess adds the flags of who may use the API.
func addAccess(flags *pflag.FlagSet, c *config) {
	flags.StringVar(&c.tokens, "tokens", "", "TOML file of the tokens that requests need, see signalbox token new; alike on all nodes")
	flags.StringVar(&c.audit, "audit", "", "file to which a line is appended for each change that clients ask for, or stderr")
	flags.StringSliceVar(&c.proxies, "trusted-proxies", nil,
		"addresses and ranges of proxies whose X-Forwarded-For or Forwarded names the client in the audit log")
}

// validateAccess checks the flags of addAccess.
func validateAccess(c *config) error {
	if c.tokens != "" {
		if _, err := access.Open(c.tokens); err != nil {
			return fmt.Errorf("--tokens: %w", err)
		}
	}
	if _, err := audit.ParseProxies(c.proxies); err != nil {
		return fmt.Errorf("--trusted-proxies: %w", err)
	}
	if len(c.proxies) > 0 && c.audit == "" {
		return errors.New("--trusted-proxies: only the audit log asks for the address of a client: give --audit too")
	}
	return nil
}

// clients are the tokens of a node, which are read again at SIGHUP and when the file changes, and its audit log.
type clients struct {
	tokens *access.Tokens // nil without
	audit  *audit.Log     // nil without; its file is opened again at SIGHUP
	ends   []func()       // stop following the files; block until that has ended
}

// end stops following the files. The audit log goes on.
func (s *clients) end() {
	for _, end := range s.ends {
		end()
	}
}

// close ends the audit log, once no request is under way.
func (s *clients) close() {
	if s.audit != nil {
		s.audit.Close()
	}
}

// openClients opens the files that the flags name.
func openClients(c config, log hclog.Logger) (*clients, error) {
	s := &clients{}
	var err error
	if c.tokens != "" {
		if s.tokens, err = access.Open(c.tokens); err != nil {
			return nil, fmt.Errorf("--tokens: %w", err)
		}
		s.ends = append(s.ends, followTokens(s.tokens, log))
	}
	if c.audit != "" {
		proxies, err := audit.ParseProxies(c.proxies)
		if err == nil {
			s.audit, err = audit.Open(audit.Config{Path: c.audit, Stderr: os.Stderr, Node: c.nodeID, Logger: log, Proxies: proxies})
		}
		if err != nil {
			s.end()
			return nil, fmt.Errorf("--audit: %w", err)
		}
		s.ends = append(s.ends, followAudit(s.audit))
	}
	return s, nil
}

func followTokens(tokens *access.Tokens, log hclog.Logger) (end func()) {
	return atHangups(func(ctx context.Context, hangups <-chan os.Signal) {
		tokens.Watch(ctx, hangups, func(err error) {
			if err != nil {
				log.Error("the file of tokens can't be used: the one before stays in use", "error", err)
				return
			}
			log.Info("the file of tokens was read again")
		})
	})
}

// followAudit opens the file of the audit log again at each SIGHUP, until end is called.
func followAudit(log *audit.Log) (end func()) {
	return atHangups(func(ctx context.Context, hangups <-chan os.Signal) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				log.Reopen()
			}
		}
	})
}

// atHangups runs follow with the process's SIGHUPs, until end is called, which waits until follow has returned.
func atHangups(follow func(ctx context.Context, hangups <-chan os.Signal)) (end func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { follow(ctx, hangups) })
	return func() { // without signal.Stop: a SIGHUP from here on must not kill a node that stops
		cancel()
		running.Wait()
	}
}
