package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func etcd() *system {
	return &system{
		name:    "etcd",
		promise: "three members; a majority has synced the lock to disk; concurrency.Mutex",
		start:   startEtcd,
	}
}

func startEtcd(ctx context.Context, dir string) (*service, error) {
	program, err := find("etcd")
	if err != nil {
		return nil, err
	}
	const members = 3
	ports, err := freePorts(2 * members)
	if err != nil {
		return nil, err
	}
	var peers, endpoints []string
	for i := range members {
		peers = append(peers, fmt.Sprintf("m%d=http://%s", i+1, local(ports[members+i])))
		endpoints = append(endpoints, local(ports[i]))
	}
	s := &service{}
	for i := range members {
		folder, address, peer := filepath.Join(dir, fmt.Sprint("m", i+1)), "http://"+local(ports[i]), "http://"+local(ports[members+i])
		if err := s.start(folder, program, "--name", fmt.Sprint("m", i+1), "--data-dir", filepath.Join(folder, "data"),
			"--listen-client-urls", address, "--advertise-client-urls", address,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(peers, ","), "--log-level", "error"); err != nil {
			s.stop()
			return nil, err
		}
	}
	s.leads = func(ctx context.Context, member int) (bool, error) {
		c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
		if err != nil {
			return false, err
		}
		defer c.Close()
		status, err := c.Status(ctx, endpoints[member])
		return err == nil && status.Leader == status.Header.MemberId, err
	}
	s.connect = func(_ context.Context, number, _ int) (client, error) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoints[number%members]}, Logger: zap.NewNop()})
		return etcdClient{c}, err
	}
	c, err := s.connect(ctx, 0, 1)
	if err == nil {
		defer c.close()
		err = await(ctx, func(ctx context.Context) error {
			_, err := c.(etcdClient).Get(ctx, "ready")
			return err
		})
	}
	if err != nil {
		s.stop()
	}
	return s, err
}

type etcdClient struct{ *clientv3.Client }

// worker opens a session for each worker: a mutex of one session does not exclude another mutex of the session.
func (c etcdClient) worker(context.Context, int) (worker, error) {
	session, err := concurrency.NewSession(c.Client)
	return &etcdWorker{session: session}, err
}

func (c etcdClient) close() { _ = c.Close() }

type etcdWorker struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (w *etcdWorker) acquire(ctx context.Context, name string) error {
	w.mutex = concurrency.NewMutex(w.session, "/"+name)
	return w.mutex.Lock(ctx)
}

func (w *etcdWorker) release(ctx context.Context) error { return w.mutex.Unlock(ctx) }
