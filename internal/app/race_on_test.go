//go:build race

package app

// raceDetector says whether the tests run with -race, where memory and time mean
// less.
const raceDetector = true
