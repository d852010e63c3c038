package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

func redisAlways() *system {
	return &system{
		name: "Redis",
		promise: "one server, `appendfsync always`; it has synced the grant to its disk, and its loss loses the semaphore; " +
			"one Lua script for each change, BLPOP to wait",
		start: startRedis,
	}
}

func startRedis(ctx context.Context, dir string) (*service, error) {
	program, err := find("redis-server")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	s := &service{}
	if err := s.start(dir, program, "--port", fmt.Sprint(ports[0]), "--bind", "127.0.0.1", "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always"); err != nil {
		return nil, err
	}
	s.connect = func(_ context.Context, _, goroutines int) (client, error) {
		return redisClient{redis.NewClient(&redis.Options{Addr: local(ports[0]), PoolSize: goroutines})}, nil
	}
	c, _ := s.connect(ctx, 0, 1)
	defer c.close()
	if err := await(ctx, func(ctx context.Context) error { return c.(redisClient).Ping(ctx).Err() }); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// leaseMS is how long a lease lives without a renewal.
const leaseMS = 30_000

// tryAcquire adds the holder ARGV[1] to the holders KEYS[1], which has room for one, and returns 1; or 0 if the permit
// is taken. A holder counts until its time has passed.
var tryAcquire = redis.NewScript(`
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ms)
if redis.call('ZCARD', KEYS[1]) > 0 then return 0 end
redis.call('ZADD', KEYS[1], ms + ARGV[2], ARGV[1])
return 1`)

// release removes the holder ARGV[1], and wakes one client that waits at KEYS[2].
var release = redis.NewScript(`
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 and redis.call('LLEN', KEYS[2]) == 0 then redis.call('LPUSH', KEYS[2], 1) end
return 1`)

type redisClient struct{ *redis.Client }

func (c redisClient) worker(_ context.Context, number int) (worker, error) {
	return &redisWorker{client: c.Client, holder: fmt.Sprint("holder-", number)}, nil
}

func (c redisClient) close() { _ = c.Close() }

type redisWorker struct {
	client       *redis.Client
	holder, name string
}

func (w *redisWorker) acquire(ctx context.Context, name string) error {
	w.name = name
	for {
		granted, err := tryAcquire.Run(ctx, w.client, []string{name}, w.holder, leaseMS).Int()
		if err != nil || granted == 1 {
			return err
		}
		// A wait of a second at most: the permit may also come back because its holder's time has passed.
		if err := w.client.BLPop(ctx, time.Second, name+":free").Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
}

func (w *redisWorker) release(ctx context.Context) error {
	return release.Run(ctx, w.client, []string{w.name, w.name + ":free"}, w.holder).Err()
}
