package main

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// FuzzPeers reads lists of peers. An accepted list has addresses that can be dialled, has no id or address twice, and is
// the same after it is written and read again.
func FuzzPeers(f *testing.F) {
	for _, seed := range []string{"", "n1=127.0.0.1:8711", "n1=n1:8711,n2=n2:8711", "a=[::1]:1, b=x:2", "n1=:1", "n1=[]:1", "=h:1", "n1=h:1,", "n1==h:1", "n1=h:http"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		peers, err := parsePeers(text)
		if err != nil {
			if peers != nil {
				t.Errorf("%q gave both peers and %v", text, err)
			}
			return
		}
		var entries, seen []string
		for _, p := range peers {
			if host, port, err := net.SplitHostPort(p.Address); err != nil || host == "" || port == "" || port == "0" {
				t.Errorf("%q can't be dialled", p.Address)
			}
			if slices.Contains(seen, p.ID) || slices.Contains(seen, p.Address) || checkNodeID(p.ID) != nil {
				t.Errorf("%q has %v twice, or as an id", text, p)
			}
			seen, entries = append(seen, p.ID, p.Address), append(entries, p.ID+"="+p.Address)
		}
		again, err := parsePeers(strings.Join(entries, ","))
		if err != nil || !slices.Equal(again, peers) {
			t.Errorf("%q is %v, and written again %v (%v)", text, peers, again, err)
		}
	})
}

// FuzzConfiguration sets the flags of a node from variables with any text. It must not panic, and must accept no limit
// below 1.
func FuzzConfiguration(f *testing.F) {
	f.Add("64KiB", "10m", "1000000", "*")
	f.Add("-1", "1e3", "9223372036854775808", "")
	f.Add("9223372036854775807GiB", "-5s", "0x10", "a,b")
	f.Fuzz(func(t *testing.T, bytes, duration, count, list string) {
		c := defaultConfig()
		flags := pflag.NewFlagSet("fuzz", pflag.ContinueOnError)
		flags.StringSliceVar(&c.cors, "cors-allow", nil, "")
		addLimits(flags, &c)
		err := cli.ApplyVariables(flags, lookup(t, "SIGNALBOX_MAX_BODY", bytes, "SIGNALBOX_MAX_WAIT", duration,
			"SIGNALBOX_MAX_LEASES", count, "SIGNALBOX_MAX_BATCH", count, "SIGNALBOX_CORS_ALLOW", list))
		if err != nil {
			return
		}
		if c.exchange.BodyBytes < 1 || c.exchange.MaxWait < 1 || c.machine.Leases < 1 || c.native.BatchSize < 1 {
			t.Errorf("taken: %+v", c)
		}
	})
}
