//go:build race

package client_test

// lostTrials is fewer with the race detector, which slows each trial fourfold.
const lostTrials = 100
