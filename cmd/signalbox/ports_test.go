package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
)

// freePorts finds a port p such that p+offset is free on loopback for each offset. Further calls, in this process or in
// other processes that run these tests, return other ports.
func freePorts(t testing.TB, offsets ...int) int {
	t.Helper()
	band.Lock()
	defer band.Unlock()
	if band.lock == nil {
		takeBand(t)
	}
	for range 2 * bandPorts {
		base := band.first + band.next
		band.next++
		if band.next+maxOffset > bandPorts {
			band.next = 1
		}
		if free(base, offsets) {
			band.next += slices.Max(offsets)
			return base
		}
	}
	t.Fatal("no free ports found")
	return 0
}

const (
	bandPorts = 2048 // so many that no run of these tests comes round to the ports of a node that is down for a moment
	maxOffset = 32   // of a call
)

// band is the range of ports of this process. A listener on its first port keeps other processes out.
var band struct {
	sync.Mutex
	lock  net.Listener
	first int
	next  int // offset that the next call tries
}

// takeBand chooses a band outside the range from which the kernel takes ports for
// connections, so that no client's connection takes a port before a node binds it.
func takeBand(t testing.TB) {
	t.Helper()
	low, high := kernelPorts()
	for range 1000 {
		first := 10240 + rand.IntN((65536-10240)/bandPorts)*bandPorts
		if first+bandPorts > low && first <= high {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first)); err == nil {
			band.lock, band.first, band.next = l, first, 1
			return
		}
	}
	t.Fatalf("no free ports found outside %d to %d, which the kernel takes for connections", low, high)
}

// kernelPorts returns the range from which the kernel takes ports. It uses a default if the kernel does not tell.
func kernelPorts() (low, high int) {
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if _, err := fmt.Sscan(string(text), &low, &high); err == nil {
			return low, high
		}
	}
	return 32768, 65535 // of Linux, macOS and Windows together
}

func free(base int, offsets []int) bool {
	for _, offset := range offsets {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+offset))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
