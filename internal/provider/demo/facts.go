package demo

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// facts is what arguments can be made from. Numbers are taken in turn, so that
// two parameters get two numbers.
type facts struct {
	said    conversation
	numbers []float64
	made    int             // examples given because no number was left
	used    map[string]bool // words of enums that are taken
}

func factsOf(c conversation) *facts {
	numbers := append(resultNumbers(c.last()), numbersIn(c.question)...)
	return &facts{said: c, numbers: numbers, used: map[string]bool{}}
}

// numbersIn finds the numbers of a text that stand by themselves: not those of
// gpt-5 or v2.
func numbersIn(s string) []float64 {
	var found []float64
	for _, m := range regexp.MustCompile(`(?:^|[\s("'=:+*/,\[{])([-+]?\d+(?:\.\d+)?)`).FindAllStringSubmatch(s, -1) {
		if n, err := strconv.ParseFloat(m[1], 64); err == nil {
			found = append(found, n)
		}
	}
	return found
}

// resultNumbers puts the number that a result states ("… is 5", "= 5") before
// the others of its text.
func resultNumbers(s string) []float64 {
	found := numbersIn(s)
	m := regexp.MustCompile(`(?:\bis|=)\s*([-+]?\d+(?:\.\d+)?)`).FindStringSubmatch(s)
	if m == nil {
		return found
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return found
	}
	return append([]float64{n}, slices.DeleteFunc(found, func(x float64) bool { return x == n })...)
}

// number takes the next number that fits; a small example when there is none.
func (f *facts) number(fits func(float64) bool) float64 {
	for i, n := range f.numbers {
		if fits(n) {
			f.numbers = slices.Delete(f.numbers, i, i+1)
			return n
		}
	}
	f.made++
	return float64(f.made)
}

// word takes one of an enum's words: first what the last result names, then
// what the question names, then the next in order.
func (f *facts) word(words []string) string {
	free := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return f.used[w] })
	if len(free) == 0 {
		free = words
	}
	chosen := free[0]
	for _, text := range []string{f.said.last(), f.said.question} {
		if w, ok := earliest(text, free); ok {
			chosen = w
			break
		}
	}
	f.used[chosen] = true
	return chosen
}

// earliest returns the word that stands first in the text.
func earliest(text string, words []string) (string, bool) {
	in := plainWords(text)
	best, at := "", len(in)
	for _, w := range words {
		if i := slices.Index(in, strings.ToLower(w)); i >= 0 && i < at {
			best, at = w, i
		}
	}
	return best, best != ""
}

// place returns the name of a place in the question: capitalised words that
// neither begin a sentence nor name a unit; else what follows "in".
func (f *facts) place() string {
	var name []string
	begins := true
	tokens := strings.Fields(f.said.question)
	for _, t := range tokens {
		bare := strings.TrimFunc(t, unicode.IsPunct)
		first := []rune(bare + " ")[0]
		switch {
		case unicode.IsUpper(first) && (!begins || len(name) > 0) && !isUnit(bare) && bare != "I":
			name = append(name, bare)
		case len(name) > 0:
			return strings.Join(name, " ")
		}
		ends := strings.HasSuffix(t, ",") || strings.ContainsAny(t[len(t)-1:], ".?!;")
		if ends && len(name) > 0 {
			break
		}
		begins = strings.ContainsAny(t[len(t)-1:], ".?!:")
	}
	if len(name) > 0 {
		return strings.Join(name, " ")
	}
	return placeAfterIn(tokens)
}

func placeAfterIn(tokens []string) string {
	for i, t := range tokens[:max(len(tokens)-1, 0)] {
		next := strings.TrimFunc(tokens[i+1], unicode.IsPunct)
		if strings.EqualFold(t, "in") && next != "" && !isUnit(next) {
			return next
		}
	}
	return "Lisbon"
}

func isUnit(s string) bool {
	return slices.Contains([]string{"celsius", "fahrenheit", "kelvin", "c", "f", "k"}, strings.ToLower(s))
}

// text returns words for a free text: what came back last, else the question.
func (f *facts) text() string {
	for _, s := range []string{f.said.last(), f.said.question} {
		if s != "" {
			return shorten(s)
		}
	}
	return "hello"
}
