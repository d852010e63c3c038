//go:build !race

package store

const damageCases = 1000

// crashes is how many losses of power TestPowerLoss makes.
const crashes = 600
