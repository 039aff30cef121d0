package config

import "strings"

// suggestion helps with a key that is not known: the one that was probably
// meant, or all that could be.
func suggestion(name string, keys []key) string {
	best, least := "", len(name)/3+2
	for _, k := range keys {
		if d := distance(strings.ToLower(name), k.name); d < least {
			best, least = k.name, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "known here: " + names(keys)
}

// distance counts the letters to add, drop or change between two words. Words
// too long to be a slip are far from everything.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
