//go:build !race

package store

const damageCases = 1000
