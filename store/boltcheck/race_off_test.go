//go:build !race

package boltcheck

const damageCases = 2000
