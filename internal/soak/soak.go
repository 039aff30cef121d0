// Package soak says how much of a heavy test a run takes.
//
//	TURNPIKE_TEST_DEPTH=       go test: every rule once, in little time
//	TURNPIKE_TEST_DEPTH=job    CI: more of each table, other cases for every commit
//	TURNPIKE_TEST_DEPTH=soak   everything
//	TURNPIKE_SEED=TEXT         chooses the cases of a sample
//
// Without TURNPIKE_SEED every run takes the same cases. Tests only import it:
//
//	for _, c := range soak.Sample(t, cases(), soak.Value(t, 3, 10, len(cases())), nil) {
//	        t.Run(c.name, ...)
//	}
package soak

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// The variables of the environment that this package reads.
const (
	DepthVariable = "TURNPIKE_TEST_DEPTH"
	SeedVariable  = "TURNPIKE_SEED"
)

// Level is how much of a heavy test runs. A higher level includes the lower ones.
type Level int

// The levels.
const (
	Plain Level = iota // go test without TURNPIKE_TEST_DEPTH
	Job                // TURNPIKE_TEST_DEPTH=job
	Soak               // TURNPIKE_TEST_DEPTH=soak
)

// Depth returns the level of this run. It fails the test if TURNPIKE_TEST_DEPTH has another value.
func Depth(t testing.TB) Level {
	t.Helper()
	switch text := os.Getenv(DepthVariable); text {
	case "":
		return Plain
	case "job":
		return Job
	case "soak":
		return Soak
	default:
		t.Fatalf("%s is %q; use \"\" (plain go test), \"job\" (the CI job) or \"soak\" (everything)", DepthVariable, text)
		return Plain
	}
}

// Value returns the argument for the level of this run.
func Value[V any](t testing.TB, plain, job, soak V) V {
	t.Helper()
	return [...]V{plain, job, soak}[Depth(t)]
}

// Require skips the test below a level. The reason says what makes the test heavy.
func Require(t testing.TB, least Level, reason string) {
	t.Helper()
	if Depth(t) < least {
		t.Skipf("runs with %s=%s: %s", DepthVariable, [...]string{"", "job or soak", "soak"}[least], reason)
	}
}

// Sample returns one case of each group and n further cases, chosen by TURNPIKE_SEED, in
// the order of the table. A nil group puts no case into a group. With soak it returns all.
// A test that fails with a sample prints how to repeat it.
func Sample[T any](t testing.TB, all []T, n int, group func(T) string) []T {
	t.Helper()
	if Depth(t) == Soak {
		return all
	}
	seed, ok := os.LookupEnv(SeedVariable)
	if !ok {
		seed = "0"
	}
	chosen := Pick(seed, all, n, group)
	if len(chosen) < len(all) {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("this was a sample of %d of %d cases; repeat it with\n%s", len(chosen), len(all), command(t, seed))
			}
		})
	}
	return chosen
}

// command returns the command that runs the test again with the same sample.
func command(t testing.TB, seed string) string {
	pkg := "."
	if info, ok := debug.ReadBuildInfo(); ok {
		pkg = strings.TrimSuffix(info.Path, ".test")
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	return fmt.Sprintf("%s='%s' %s=%s go test -run '^%s$' %s", SeedVariable, seed, DepthVariable, os.Getenv(DepthVariable), name, pkg)
}

// Pick returns one case of each group and n further ones, in the order of the table. The
// same seed gives the same cases.
func Pick[T any](seed string, all []T, n int, group func(T) string) []T {
	chosen := make([]bool, len(all))
	seen := map[string]bool{}
	for _, i := range rand.New(rand.NewChaCha8(sha256.Sum256([]byte(seed)))).Perm(len(all)) {
		switch {
		case group != nil && !seen[group(all[i])]:
			seen[group(all[i])] = true
			chosen[i] = true
		case n > 0:
			n--
			chosen[i] = true
		}
	}
	var list []T
	for i, c := range all {
		if chosen[i] {
			list = append(list, c)
		}
	}
	return list
}
