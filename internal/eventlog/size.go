package eventlog

import "github.com/turnpike-gateway/turnpike/item"

// HeldBytes returns the memory that the items occupy, in bytes: of each turn the larger of its native and
// its plain form. For what they are in a prompt see package window.
func HeldBytes(items []item.Item) int {
	total := 0
	for turn := range item.Turns(items) {
		native, plain := 0, 0
		for _, it := range turn {
			native += len(it.Native.JSON)
			plain += len(it.Name) + len(it.Arguments) + len(it.Structured) + DataBytes(it.Parts)
			for _, p := range it.Parts {
				plain += len(p.Text)
			}
		}
		total += max(native, plain)
	}
	return total
}

// DataBytes returns the size of the base64 data in the parts.
func DataBytes(parts []item.Part) int {
	n := 0
	for _, p := range parts {
		n += len(p.Data)
	}
	return n
}
