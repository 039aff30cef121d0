package route

import "testing"

// A glob of a key for which there is no model is found, as far as that can be known. // P46
func TestWhetherARequestCanAskForAGlob(t *testing.T) {
	r := New([]Provider{{Name: "up", Models: []string{"m", "gpt-*"}}, {Name: "eu", Models: []string{"mistral"}}},
		Route{Model: "fast", Targets: []WeightedTarget{{Provider: "up", Model: "m"}}})
	for pattern, want := range map[string]bool{
		"m": true, "n": false, "gpt-5": true, "gpt": false, "up/x": true, "other/x": false, "fast": true, "fa*": true, "fb*": false,
		"m*": true, "mist*": true, "n*": false, "gpt-5*": true, "g*": true, "gpt-*": true, "up/*": true, "eu/mis*": true, "other/*": false, "*": true,
	} {
		if got := r.MayServe(pattern); got != want {
			t.Errorf("%s: %v, want %v", pattern, got, want)
		}
	}
}
