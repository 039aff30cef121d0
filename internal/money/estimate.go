package money

import "math/bits"

// Prompt describes a model call before it is sent, as far as it decides what the call
// can cost at most.
type Prompt struct {
	Counted int64 // tokens of the beginning of the prompt that the provider has counted before
	Bytes   int64 // bytes of the text after it, without the data of images
	Images  int64 // tokens of the images after it: the sum of [ImageTokens]

	Writes bool   // the request asks the provider to write to its cache
	Tier   string // the service tier that the request asks for; "" = none

	// GPUMS is the longest time that the call can take, in milliseconds. It counts only for
	// a price with GPUSecond.
	GPUMS int64
}

// bytesPerToken is small: few texts have fewer bytes per token.
const bytesPerToken = 3

// Tokens returns the estimate of the input tokens.
func (p Prompt) Tokens() int64 {
	return count(p.Counted) + ceil(count(p.Bytes), bytesPerToken) + count(p.Images)
}

// MaxCost returns the maximum cost of a call with at most output tokens of output. It is
// estimated from the size of the prompt and not exact: a provider may count more
// tokens. It is 0 without a known price.
//
// All input is billed at the rate of input that is not cached, or at the rate of a write
// if that is higher and the request asks for writes. If the prompt can be long, the
// higher rates count.
func MaxCost(p Price, prompt Prompt, output int64) Nano {
	if !p.Known() {
		return 0
	}
	t, r := fixedCost(p, prompt)
	t.add(count(output), int64(r.Output))
	return t.nano()
}

// LargestOutput returns the highest output limit, in tokens, with which the maximum cost
// of a call is at most left. ok is false if not even a call without output fits. The
// result is at most limit: what the caller asked for, or the model's own limit.
func LargestOutput(p Price, prompt Prompt, left Nano, limit int64) (output int64, ok bool) {
	t, r := fixedCost(p, prompt)
	if !p.Known() || left < 0 || t.nano() > left {
		return 0, false
	}
	if r.Output <= 0 {
		return count(limit), true
	}
	hi, lo := bits.Mul64(uint64(left), picoPerNano)
	lo, borrow := bits.Sub64(lo, t.lo, 0)
	hi, _ = bits.Sub64(hi, t.hi, borrow)
	if hi >= uint64(r.Output) { // the quotient does not fit: more than any limit
		return count(limit), true
	}
	q, _ := bits.Div64(hi, lo, uint64(r.Output))
	return int64(min(q, uint64(count(limit)))), true
}

// fixedCost returns the maximum cost of a call without its output, and the rates that it
// is billed at.
func fixedCost(p Price, prompt Prompt) (total, Rates) {
	var t total
	tokens := prompt.Tokens()
	r := p.rates(prompt.Tier, tokens)
	if p.isLong(tokens) {
		r = r.higher(p.rates(prompt.Tier, 0)) // the estimate is high: the prompt may not be long
	}
	input := r.Input
	if prompt.Writes {
		input = max(input, r.CacheWrite, r.CacheWrite1h)
	}
	t.add(tokens, int64(input))
	t.add(count(prompt.GPUMS), int64(p.GPUSecond))
	return t, r
}

// The estimate of [ImageTokens] is for the model that counts most, of those that cut an
// image into patches of 32 pixels and of those that count 170 tokens for each 512 pixels
// of a side. Providers shrink larger images, so that there is a maximum.
const (
	patch             = 32 // pixels
	pixelsPerToken    = 400
	tile              = 512 // pixels
	tokensPerTile     = 170
	tokensPerImage    = 300
	largestSide       = 1 << 16 // pixels; with one side as long the result is the maximum
	tokensOfAnUnknown = 5_000
)

// ImageTokens returns the estimate of the tokens of an image of width × height pixels.
// A size of 0 is not known. The estimate is too low for gpt-4o-mini, which counts an
// image 33 times.
func ImageTokens(width, height int) int64 {
	w, h := min(int64(width), largestSide), min(int64(height), largestSide)
	if w <= 0 || h <= 0 {
		return tokensOfAnUnknown
	}
	pixels := ceil(w, patch) * ceil(h, patch) * patch * patch
	tokens := ceil(pixels, pixelsPerToken) + ceil(max(w, h), tile)*tokensPerTile + tokensPerImage
	return min(tokens, tokensOfAnUnknown)
}

// ceil returns n divided by d, rounded up.
func ceil(n, d int64) int64 { return (n + d - 1) / d }
