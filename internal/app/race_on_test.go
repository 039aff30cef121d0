//go:build race

package app_test

// raceDetector says whether the tests run with -race, where memory and time mean
// less.
const raceDetector = true
