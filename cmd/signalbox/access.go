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

func addAccess(flags *pflag.FlagSet, c *config) {
	flags.StringVar(&c.tokens, "tokens", "", "TOML file of the tokens that requests need, see signalbox token new; alike on all nodes")
	flags.StringVar(&c.audit, "audit", "", "file to which a line is appended for each change that clients ask for, or stderr")
	flags.StringSliceVar(&c.proxies, "trusted-proxies", nil,
		"addresses and ranges of proxies whose X-Forwarded-For or Forwarded names the client in the audit log")
}

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

// clients are a node's tokens and audit log. The tokens are read again at SIGHUP and when their file changes.
type clients struct {
	tokens *access.Tokens // nil without --tokens
	audit  *audit.Log     // nil without --audit; its file is opened again at SIGHUP
	ends   []func()       // each stops following a file, and blocks until that has ended
}

// stopFollowing stops following the files. Requests can still write to the audit log.
func (s *clients) stopFollowing() {
	for _, end := range s.ends {
		end()
	}
}

// closeAudit ends the audit log. No request may be under way.
func (s *clients) closeAudit() {
	if s.audit != nil {
		s.audit.Close()
	}
}

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
			s.stopFollowing()
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

// followAudit opens the audit log's file again at each SIGHUP, until end is called.
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

// atHangups runs follow, with the process's SIGHUPs, until end is called. end blocks until follow has returned.
func atHangups(follow func(ctx context.Context, hangups <-chan os.Signal)) (end func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { follow(ctx, hangups) })
	return func() { // don't call signal.Stop: a later SIGHUP would then kill the stopping node
		cancel()
		running.Wait()
	}
}
