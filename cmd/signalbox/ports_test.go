package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// freePorts finds a port p such that p+offset is free on loopback for each offset.
// It looks below the range from which the kernel takes ports for connections, so
// that no client's connection takes one before the node binds it.
func freePorts(t testing.TB, offsets ...int) int {
	t.Helper()
	for range 1000 {
		base := 15000 + rand.IntN(15000)
		if free(base, offsets) {
			return base
		}
	}
	t.Fatal("no free ports found")
	return 0
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
