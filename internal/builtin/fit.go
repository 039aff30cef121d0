package builtin

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Fitting is a value whose JSON can be made shorter without losing its members.
type Fitting interface {
	// Fit returns the value with the middle of its long texts left out, so that its JSON has at most n bytes. It returns the shortest
	// that there is if the rest of it is longer.
	Fit(n int) any
}

// Fit implements [Fitting]: of the output and the result the begin and the end are kept.
func (r CodeResult) Fit(n int) any {
	return fit(n, func(most int) any {
		short := r
		short.Images = nil
		short.Stdout, short.Stderr, short.Result = ends(r.Stdout, most), ends(r.Stderr, most), ends(r.Result, most)
		return short
	}, r.Stdout, r.Stderr, r.Result)
}

// Fit implements [Fitting]: of the output of each command the begin and the end are kept.
func (r ShellResult) Fit(n int) any {
	var texts []string
	for _, o := range r.Output {
		texts = append(texts, o.Stdout, o.Stderr)
	}
	return fit(n, func(most int) any {
		short := r
		short.Output = slices.Clone(r.Output)
		for i, o := range r.Output {
			short.Output[i].Stdout, short.Output[i].Stderr = ends(o.Stdout, most), ends(o.Stderr, most)
		}
		return short
	}, texts...)
}

// fit returns the value with the longest texts whose JSON has at most n bytes. of returns it with texts of at most so many bytes.
func fit(n int, of func(most int) any, texts ...string) any {
	longest := 0
	for _, t := range texts {
		longest = max(longest, len(t))
	}
	most := sort.Search(longest+1, func(most int) bool {
		e, err := Encode(of(most))
		return err != nil || len(e.JSON) > n
	})
	return of(max(0, most-1))
}

// ends returns the begin and the end of a text, with a line that says how much is left out; the text itself if it has at most so
// many bytes.
func ends(text string, most int) string {
	if len(text) <= most {
		return text
	}
	begin := strings.ToValidUTF8(text[:most/2], "")
	end := strings.ToValidUTF8(text[len(text)-most/2:], "")
	return fmt.Sprintf("%s\n…[%d bytes are left out here]…\n%s", begin, len(text)-len(begin)-len(end), end)
}
