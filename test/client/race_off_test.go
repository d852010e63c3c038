//go:build !race

package client_test

// lostTrials is how many lives TestLostBeforeGrantedAnew gives a lease.
const lostTrials = 1000
