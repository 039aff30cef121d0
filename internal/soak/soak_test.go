package soak_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// recorder is a test that keeps what it is told.
type recorder struct {
	testing.TB
	said     string
	failed   bool
	cleanups []func()
}

func (r *recorder) Helper()                           {}
func (r *recorder) Name() string                      { return "TestIt/a_case" }
func (r *recorder) Failed() bool                      { return r.failed }
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Logf(format string, args ...any)   { r.said += fmt.Sprintf(format, args...) }
func (r *recorder) Skipf(format string, args ...any)  { r.said += fmt.Sprintf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func TestADepthChoosesHowMuchRuns(t *testing.T) {
	for text, want := range map[string]soak.Level{"": soak.Plain, "job": soak.Job, "soak": soak.Soak} {
		t.Setenv(soak.DepthVariable, text)
		if got := soak.Depth(t); got != want || soak.Value(t, soak.Plain, soak.Job, soak.Soak) != want {
			t.Errorf("%q is level %d, want %d", text, got, want)
		}
		r := &recorder{TB: t}
		soak.Require(r, soak.Job, "it is slow")
		if skipped := strings.Contains(r.said, "TURNPIKE_TEST_DEPTH=job or soak: it is slow"); skipped != (want < soak.Job) {
			t.Errorf("%q skips a test of the job: %v, %q", text, skipped, r.said)
		}
		if n := len(soak.Sample(t, numbers(20), 4, nil)); n != map[soak.Level]int{soak.Plain: 4, soak.Job: 4, soak.Soak: 20}[want] {
			t.Errorf("%q samples %d of 20", text, n)
		}
	}
	t.Setenv(soak.DepthVariable, "deep")
	r := &recorder{TB: t}
	if soak.Depth(r); !strings.Contains(r.said, `"deep"; use "" (plain go test), "job" (the CI job) or "soak" (everything)`) {
		t.Errorf("another value is answered with %q", r.said)
	}
}

func TestAFailedSampleSaysHowToRepeatIt(t *testing.T) {
	t.Setenv(soak.DepthVariable, "job")
	t.Setenv(soak.SeedVariable, "c0ffee")
	r := &recorder{TB: t}
	soak.Sample(r, numbers(20), 4, nil)
	for _, failed := range []bool{false, true} {
		r.failed = failed
		for _, f := range r.cleanups {
			f()
		}
		const want = "TURNPIKE_SEED='c0ffee' TURNPIKE_TEST_DEPTH=job go test -run '^TestIt$' github.com/turnpike-gateway/turnpike/internal/soak"
		if strings.Contains(r.said, want) != failed {
			t.Errorf("failed: %v, it says %q", failed, r.said)
		}
	}
}

func TestASampleHasEachGroupAndNFurtherCases(t *testing.T) {
	for seed := range 100 {
		got := soak.Pick(strconv.Itoa(seed), numbers(50), 3, func(i int) string { return strconv.Itoa(i % 10) })
		groups := map[int]bool{}
		for _, i := range got {
			groups[i%10] = true
		}
		if len(got) != 13 || len(groups) != 10 || !slices.IsSorted(got) {
			t.Errorf("seed %d chooses %v", seed, got)
		}
	}
	if first, second := soak.Pick("a", numbers(50), 5, nil), soak.Pick("a", numbers(50), 5, nil); !slices.Equal(first, second) {
		t.Errorf("the same seed chooses %v, then %v", first, second)
	}
}

func TestTheSeedsCoverEveryCase(t *testing.T) {
	covered := map[int]bool{}
	for seed := range 100 {
		for _, i := range soak.Pick(strconv.Itoa(seed), numbers(250), 25, nil) {
			covered[i] = true
		}
	}
	if len(covered) != 250 {
		t.Errorf("seeds 0 to 99 choose %d of 250 cases", len(covered))
	}
}
