package demo

import "math"

// limits are what a schema says about a number.
type limits struct {
	least, most, step float64
	open              [2]bool // whether least and most themselves are out
}

func limitsOf(s map[string]any) limits {
	l := limits{least: math.Inf(-1), most: math.Inf(1)}
	if typeOf(s) == "integer" {
		l.step = 1
	}
	read := func(key string, into *float64) bool {
		n, ok := s[key].(float64)
		if ok {
			*into = n
		}
		return ok
	}
	read("minimum", &l.least)
	read("maximum", &l.most)
	read("multipleOf", &l.step)
	l.open = [2]bool{read("exclusiveMinimum", &l.least), read("exclusiveMaximum", &l.most)}
	return l
}

func (l limits) hold(n float64) bool {
	return n >= l.least && n <= l.most && !(l.open[0] && n == l.least) && !(l.open[1] && n == l.most) &&
		!math.IsInf(n, 0) && (l.step == 0 || math.Mod(n, l.step) == 0)
}

// nearest returns a number within the limits, if there is one, close to n.
func (l limits) nearest(n float64) float64 {
	step := l.step
	if step == 0 {
		step = 0.5
	}
	n = min(max(n, l.least), l.most)
	up, down := math.Ceil(n/step)*step, math.Floor(n/step)*step
	for _, near := range []float64{up, down, up + step, down - step, (l.least + l.most) / 2} {
		if l.hold(near) {
			return near
		}
	}
	return n
}
