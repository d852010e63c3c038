package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

var zookeeperClasses = flag.String("zookeeper", "/usr/share/java/*", "the class path of ZooKeeper; Debian's package zookeeper is there")

func zookeeper() *system {
	return &system{
		name:    "ZooKeeper",
		promise: "three servers; a majority has synced the lock to disk; the recipe of locks",
		start:   startZookeeper,
	}
}

func startZookeeper(ctx context.Context, dir string) (*service, error) {
	program, err := find("java")
	if err != nil {
		return nil, err
	}
	if found, err := filepath.Glob(filepath.Join(filepath.Dir(*zookeeperClasses), "zookeeper*.jar")); err != nil || len(found) == 0 {
		return nil, fmt.Errorf("zookeeper.jar: %w", errNotInstalled)
	}
	const servers = 3
	ports, err := freePorts(3 * servers)
	if err != nil {
		return nil, err
	}
	var ensemble strings.Builder
	var addresses []string
	for i := range servers {
		fmt.Fprintf(&ensemble, "server.%d=127.0.0.1:%d:%d\n", i+1, ports[servers+i], ports[2*servers+i])
		addresses = append(addresses, local(ports[i]))
	}
	s := &service{}
	for i := range servers {
		folder := filepath.Join(dir, fmt.Sprint("s", i+1))
		settings := filepath.Join(folder, "zoo.cfg")
		// The first five lines are as in the sample file of ZooKeeper. We lift the limit of 60 connections from one
		// host, since up to 256 clients run on this machine.
		text := fmt.Sprintf("tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=%s\nclientPort=%d\nmaxClientCnxns=0\nadmin.enableServer=false\n%s",
			folder, ports[i], ensemble.String())
		if err = os.MkdirAll(folder, 0o700); err == nil {
			err = os.WriteFile(settings, []byte(text), 0o600)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, "myid"), []byte(fmt.Sprintln(i+1)), 0o600)
		}
		if err == nil {
			err = s.start(folder, program, "-cp", *zookeeperClasses, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
				"org.apache.zookeeper.server.quorum.QuorumPeerMain", settings)
		}
		if err != nil {
			s.stop()
			return nil, err
		}
	}
	s.connect = func(_ context.Context, number, _ int) (client, error) {
		conn, _, err := zk.Connect([]string{addresses[number%servers]}, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
		return zookeeperClient{conn}, err
	}
	c, err := s.connect(ctx, 0, 1)
	if err == nil {
		defer c.close()
		err = await(ctx, func(context.Context) error {
			_, err := c.(zookeeperClient).Create("/locks", nil, 0, zk.WorldACL(zk.PermAll))
			if errors.Is(err, zk.ErrNodeExists) {
				return nil
			}
			return err
		})
	}
	if err != nil {
		s.stop()
	}
	return s, err
}

// silent drops the lines that a client logs, such as each end of a connection.
type silent struct{}

func (silent) Printf(string, ...any) {}

type zookeeperClient struct{ *zk.Conn }

func (c zookeeperClient) worker(context.Context, int) (worker, error) {
	return &zookeeperWorker{conn: c.Conn}, nil
}

func (c zookeeperClient) close() { c.Close() }

type zookeeperWorker struct {
	conn *zk.Conn
	lock *zk.Lock
}

func (w *zookeeperWorker) acquire(ctx context.Context, name string) error {
	w.lock = zk.NewLock(w.conn, "/locks/"+name, zk.WorldACL(zk.PermAll))
	return w.lock.LockWithData(nil)
}

func (w *zookeeperWorker) release(context.Context) error { return w.lock.Unlock() }
