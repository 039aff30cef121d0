//go:build !race

package sandboxtest

const raceDetector = false
