package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
)

// PricesPath is the path of the page that [Pages] serves.
const PricesPath = "/prices"

// Pages returns a web server with one page, a table of prices, for tools that read the web.
func Pages() http.Handler {
	const page = `<!DOCTYPE html>
<html><head><title>Prices of the demo shop</title><style>td { padding: 1em }</style></head>
<body><main><h1>Prices</h1>
<table><tr><th>article</th><th>price</th></tr>
<tr><td>lamp</td><td>24.50</td></tr>
<tr><td>cable</td><td>8.25</td></tr>
<tr><td>desk</td><td>119</td></tr></table>
</main></body></html>
`
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PricesPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(w, page)
	})
	return mux
}

// builtinCall returns the call of a built-in tool that the question asks for: it has a URL to read, or it names a language
// to run code in. Asks is true if it asks for one, and name is "" if all that it asks for is done.
func builtinCall(tools []offered, said conversation) (name, arguments string, asks bool) {
	if address := urlIn(said.question); address != "" && len(named(tools, builtin.WebScrape)) > 0 {
		if asks = true; !said.called(builtin.WebScrape) {
			return builtin.WebScrape, string(marshal(object{{"url", address}})), true
		}
	}
	if len(named(tools, builtin.CodeExecute)) == 0 {
		return "", "", asks
	}
	for _, language := range languagesIn(said.question) {
		asks = true
		if !said.ran(language) {
			return builtin.CodeExecute, string(marshal(object{{"language", language}, {"code", program(language, numbersFor(said))}})), true
		}
	}
	return "", "", asks
}

// urlIn returns the first URL of a text.
func urlIn(s string) string {
	return strings.TrimRight(regexp.MustCompile(`https?://[^\s"'<>]+`).FindString(s), ".,;:!?)")
}

// languagesIn returns the languages of code_execute that a text names, in its order.
func languagesIn(s string) []string {
	var found []string
	for _, w := range plainWords(s) {
		if (w == "javascript" || w == "python") && !slices.Contains(found, w) {
			found = append(found, w)
		}
	}
	return found
}

// ran reports whether code in the language was run since the question.
func (c conversation) ran(language string) bool {
	return slices.ContainsFunc(c.results, func(r result) bool {
		var a struct{ Language string }
		return r.tool == builtin.CodeExecute && json.Unmarshal([]byte(r.arguments), &a) == nil && a.Language == language
	})
}

// numbersFor returns the numbers for a program: those of the page that was read, else those of the question.
func numbersFor(c conversation) []string {
	text := c.question
	for _, r := range c.results {
		if r.tool == builtin.WebScrape {
			text = r.text
		}
	}
	var found []string
	for _, n := range numbersIn(regexp.MustCompile(`https?://\S+`).ReplaceAllString(text, "")) {
		found = append(found, strconv.FormatFloat(n, 'f', -1, 64))
	}
	return found
}

// program returns code that adds numbers up.
func program(language string, numbers []string) string {
	list := strings.Join(numbers, ", ")
	if language == "python" {
		return fmt.Sprintf("numbers = [%s]\nf'the sum of {len(numbers)} numbers is {sum(numbers)}'", list)
	}
	return fmt.Sprintf("const numbers = [%s];\nlet sum = 0;\nfor (const n of numbers) sum += n;\n`the sum of ${numbers.length} numbers is ${sum}`", list)
}
