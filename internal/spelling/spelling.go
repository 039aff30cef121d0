// Package spelling finds the name that was probably meant by a misspelt one.
package spelling

import "strings"

// maxLength is the longest name, in bytes, that is compared.
const maxLength = 64

// Nearest returns the known name that is most similar to a name, whatever the case of their
// letters; the first of several. It returns "" if no known name is similar.
func Nearest(name string, known []string) string {
	best, least := "", len(name)/3+2
	if len(name) > maxLength {
		return ""
	}
	name = strings.ToLower(name)
	for _, k := range known {
		if len(k) > maxLength || max(len(k)-len(name), len(name)-len(k)) >= least {
			continue
		}
		if d := distance(name, strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance returns how many bytes must be added, dropped or changed to make b of a.
func distance(a, b string) int {
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
