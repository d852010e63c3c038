package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
)

func signalboxCluster() *system {
	return &system{
		name:    "Signalbox",
		promise: "three nodes; a majority has synced the grant to disk",
		start:   func(ctx context.Context, dir string) (*service, error) { return startSignalbox(ctx, dir, 3) },
	}
}

func signalboxAlone() *system {
	return &system{
		name:    "Signalbox, one node",
		promise: "one node; it has synced the grant to disk",
		start:   func(ctx context.Context, dir string) (*service, error) { return startSignalbox(ctx, dir, 1) },
	}
}

func startSignalbox(ctx context.Context, dir string, nodes int) (*service, error) {
	program, err := find("signalbox")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2 * nodes)
	if err != nil {
		return nil, err
	}
	var peers, addresses []string
	for i := range nodes {
		peers = append(peers, fmt.Sprintf("n%d=%s", i+1, local(ports[nodes+i])))
		addresses = append(addresses, "http://"+local(ports[i]))
	}
	s := &service{}
	for i := range nodes {
		folder := filepath.Join(dir, fmt.Sprint("n", i+1))
		if err := s.start(folder, program, "serve", "--node-id", fmt.Sprint("n", i+1), "--http", local(ports[i]),
			"--peers", strings.Join(peers, ","), "--data", filepath.Join(folder, "data")); err != nil {
			s.stop()
			return nil, err
		}
	}
	s.leads = func(ctx context.Context, node int) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, addresses[node]+"/v1/cluster", nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		var status struct{ Node, Leader string }
		err = json.NewDecoder(response.Body).Decode(&status)
		return status.Leader == status.Node, err
	}
	clientOf := func(number int) (*signalbox.Client, error) {
		turn := number % nodes
		return signalbox.New(signalbox.Config{Addresses: slices.Concat(addresses[turn:], addresses[:turn])})
	}
	s.connect = func(_ context.Context, number, _ int) (client, error) {
		c, err := clientOf(number)
		return signalboxClient{c}, err
	}
	s.prepare = func(ctx context.Context, names []string) error {
		c, err := clientOf(0)
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		for _, name := range names {
			if err := await(ctx, func(ctx context.Context) error {
				_, _, err := c.Create(ctx, name, 1)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	}
	return s, s.prepare(ctx, []string{"ready"})
}

type signalboxClient struct{ *signalbox.Client }

func (c signalboxClient) worker(context.Context, int) (worker, error) {
	return &signalboxWorker{client: c.Client}, nil
}

func (c signalboxClient) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

type signalboxWorker struct {
	client *signalbox.Client
	lease  *signalbox.Lease
}

func (w *signalboxWorker) acquire(ctx context.Context, name string) (err error) {
	w.lease, err = w.client.Acquire(ctx, name)
	return err
}

func (w *signalboxWorker) release(ctx context.Context) error { return w.lease.Release(ctx) }
