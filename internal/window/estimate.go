package window

import (
	"math/bits"
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
)

// The bounds of an estimate. Before the provider has counted, four bytes of text are a token. What a
// run learns from the provider's counts is believed within the other two: text in other scripts has
// fewer bytes per token, and base64 or runs of spaces have more.
const (
	bytesPerToken    = 4
	minBytesPerToken = 1
	maxBytesPerToken = 8

	minSample = 512 // bytes; a smaller sample says little about a text
	maxTokens = 1 << 40
)

// Calibration is what a run has learnt about its tokens from the provider's counts. The zero value
// has learnt nothing.
type Calibration struct {
	Bytes  int64 // bytes of text that were sent
	Tokens int64 // what the provider has counted for them
}

// Learn returns the calibration after the provider has counted tokens for so many bytes of prompt
// that it had not counted before. Small samples and impossible numbers are ignored.
func (c Calibration) Learn(bytes, tokens int64) Calibration {
	if bytes < minSample || tokens <= 0 || bytes > maxTokens || tokens > maxTokens {
		return c
	}
	if c.Bytes > maxTokens { // the latest samples count most, and no sum overflows
		c.Bytes, c.Tokens = c.Bytes/2, c.Tokens/2
	}
	return Calibration{c.Bytes + bytes, c.Tokens + tokens}
}

// Estimate returns how many tokens so many bytes of text are, rounded up.
func (c Calibration) Estimate(bytes int64) int64 {
	bytes = min(max(bytes, 0), maxTokens)
	if c.Bytes <= 0 || c.Tokens <= 0 {
		return ceil(bytes, bytesPerToken)
	}
	most, least := ceil(bytes, minBytesPerToken), ceil(bytes, maxBytesPerToken)
	return min(max(share(bytes, c.Tokens, c.Bytes), least), most)
}

func ceil(n, by int64) int64 { return (n + by - 1) / by }

// share returns n × part ÷ whole, rounded up, at most maxTokens. whole is positive, the others are not negative.
func share(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	lo, carry := bits.Add64(lo, uint64(whole)-1, 0)
	if hi += carry; hi >= uint64(whole) {
		return maxTokens
	}
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(min(q, maxTokens))
}

// Bytes returns the size of the items in a prompt, in bytes of text. Of each turn it counts the larger
// of its native and its plain form, because the provider gets one of them.
func Bytes(items []item.Item) int64 {
	total := int64(0)
	for _, n := range sizes(items) {
		total += n
	}
	return total
}

// sizes returns the share of each item in Bytes. What the native form of a turn has beyond its plain
// form counts for its first item.
func sizes(items []item.Item) []int64 {
	out := make([]int64, len(items))
	for at := 0; at < len(items); {
		end := item.TurnEnd(items, at)
		native, plain := int64(0), int64(0)
		for i := at; i < end; i++ {
			it := &items[i]
			out[i] = int64(len(it.Name) + len(it.Arguments) + PartBytes(it.Parts))
			plain += out[i]
			native += int64(len(it.Native.JSON))
		}
		out[at] += max(native-plain, 0)
		at = end
	}
	return out
}

// maxImageBytes is the maximum size of an image in a prompt. Providers scale large images
// down, so that an image has a few thousand tokens at most.
const maxImageBytes = 16 << 10

// PartBytes returns the size of the parts in a prompt, in bytes of text. Binary content
// other than images counts in full, because its tokens are not bounded.
func PartBytes(parts []item.Part) int {
	n := 0
	for _, p := range parts {
		switch {
		case p.Data == "":
			n += len(p.Text)
		case strings.HasPrefix(p.MIMEType, "image/"):
			n += min(len(p.Data), maxImageBytes)
		default:
			n += len(p.Data)
		}
		if p.Kind == item.Resource {
			n += len(p.URL) + len(p.Name) + len(p.Title) + len(p.MIMEType) + len(p.Description)
		}
	}
	return n
}
