//go:build !race

package surfacetest

// raceDetector says that the tests run with -race.
const raceDetector = false
