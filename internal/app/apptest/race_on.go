//go:build race

package apptest

// RaceDetector says whether the tests run with -race, where memory and time mean less.
const RaceDetector = true
