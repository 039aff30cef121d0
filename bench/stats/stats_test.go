package stats

import (
	"math"
	"slices"
	"testing"
)

func TestSummarize(t *testing.T) {
	for _, tt := range []struct {
		name string
		xs   []float64
		want Summary
	}{
		{"one value is all three", []float64{2}, Summary{2, 2, 2}},
		{"an odd number has a middle", []float64{9, 1, 4}, Summary{1, 4, 9}},
		{"an even number has the mean of the middle two", []float64{4, 1, 2, 9}, Summary{1, 3, 9}},
		{"one bad pass does not move the median", []float64{0.1, 0.9, 0.9, 0.9, 0.9}, Summary{0.1, 0.9, 0.9}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			given := slices.Clone(tt.xs)
			if got := Summarize(tt.xs); got != tt.want {
				t.Errorf("Summarize(%v) = %v, want %v", tt.xs, got, tt.want)
			}
			if !slices.Equal(given, tt.xs) {
				t.Errorf("the values were reordered: %v", tt.xs)
			}
		})
	}
}

func TestGate(t *testing.T) {
	for _, tt := range []struct {
		name string
		gate Gate
		s    Summary
		want bool
	}{
		{"at least: on the limit passes", AtLeast(0.8), Exactly(0.8), true},
		{"at least: below fails", AtLeast(0.8), Exactly(0.79), false},
		{"at least: the median counts, not the minimum", AtLeast(0.8), Summary{0.1, 0.9, 1}, true},
		{"at most: on the limit passes", AtMost(0), Exactly(0), true},
		{"at most: above fails", AtMost(0), Exactly(1), false},
		{"at most: the median counts, not the maximum", AtMost(103.5), Summary{90, 95, 400}, true},
		{"nothing measured fails a lower bound", AtLeast(0), Summarize(nil), false},
		{"nothing measured fails an upper bound", AtMost(math.MaxFloat64), Summarize(nil), false},
		{"no gate always holds", Gate{}, Exactly(5), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.gate.Holds(tt.s); got != tt.want {
				t.Errorf("Holds = %v, want %v", got, tt.want)
			}
		})
	}
}
