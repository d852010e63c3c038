package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"
)

func jetstream() *system {
	return &system{
		name:    "NATS JetStream",
		promise: "three servers, `sync_interval: always`; a majority has synced the key to disk; Create and Delete of a key, and a watch while it is there",
		start:   startJetstream,
	}
}

func startJetstream(ctx context.Context, dir string) (*service, error) {
	program, err := find("nats-server")
	if err != nil {
		return nil, err
	}
	const servers = 3
	ports, err := freePorts(2 * servers)
	if err != nil {
		return nil, err
	}
	var routes, urls []string
	for i := range servers {
		routes = append(routes, "nats://"+local(ports[servers+i]))
		urls = append(urls, "nats://"+local(ports[i]))
	}
	s := &service{}
	for i := range servers {
		folder := filepath.Join(dir, fmt.Sprint("s", i+1))
		settings := filepath.Join(folder, "nats.conf")
		text := fmt.Sprintf("server_name: s%d\nlisten: %q\ncluster { name: c, listen: %q, routes: [%s] }\njetstream { store_dir: %q, sync_interval: always }\n",
			i+1, local(ports[i]), local(ports[servers+i]), strings.Join(routes, ", "), filepath.Join(folder, "data"))
		if err = os.MkdirAll(folder, 0o700); err == nil {
			err = os.WriteFile(settings, []byte(text), 0o600)
		}
		if err == nil {
			err = s.start(folder, program, "--config", settings)
		}
		if err != nil {
			s.stop()
			return nil, err
		}
	}
	s.connect = func(ctx context.Context, number, _ int) (client, error) {
		conn, err := nats.Connect(urls[number%servers])
		if err != nil {
			return nil, err
		}
		stream, err := js.New(conn)
		if err != nil {
			return nil, err
		}
		var keys js.KeyValue
		err = await(ctx, func(ctx context.Context) (err error) {
			keys, err = stream.CreateOrUpdateKeyValue(ctx, js.KeyValueConfig{Bucket: "locks", Replicas: servers})
			return err
		})
		return jetstreamClient{conn, keys}, err
	}
	var c client
	err = await(ctx, func(ctx context.Context) (err error) {
		c, err = s.connect(ctx, 0, 1)
		return err
	})
	if err != nil {
		s.stop()
		return nil, err
	}
	c.close()
	return s, nil
}

type jetstreamClient struct {
	conn *nats.Conn
	keys js.KeyValue
}

func (c jetstreamClient) worker(context.Context, int) (worker, error) {
	return &jetstreamWorker{keys: c.keys}, nil
}

func (c jetstreamClient) close() { c.conn.Close() }

type jetstreamWorker struct {
	keys js.KeyValue
	name string
}

func (w *jetstreamWorker) acquire(ctx context.Context, name string) error {
	w.name = name
	for {
		_, err := w.keys.Create(ctx, name, nil)
		if !lostRace(err) {
			return err
		}
		if err := w.awaitDelete(ctx); err != nil {
			return err
		}
	}
}

// lostRace says whether another worker has the key. Create tells this by two errors: the key exists, or the delete that
// it has seen is not the key's last change any more, for which servers have two codes.
func lostRace(err error) bool {
	var refusal *js.APIError
	return errors.Is(err, js.ErrKeyExists) ||
		errors.As(err, &refusal) && (refusal.ErrorCode == js.JSErrCodeStreamWrongLastSequence || refusal.ErrorCode == 10164)
}

// awaitDelete returns when the key is not there.
func (w *jetstreamWorker) awaitDelete(ctx context.Context) error {
	watcher, err := w.keys.Watch(ctx, w.name)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case entry := <-watcher.Updates():
			if entry != nil && entry.Operation() != js.KeyValuePut {
				return nil
			}
		}
	}
}

func (w *jetstreamWorker) release(ctx context.Context) error { return w.keys.Delete(ctx, w.name) }
