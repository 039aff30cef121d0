package conformance

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// The texts of the question that needs two tools.
const (
	sumQuestion = "Which sum do the numbers that the echo returns make?"
	sumOpening  = "I will ask the echo for the numbers first."
	sumAnswer   = "Twice checked: 42 it is, since the tool says “The sum of 20 and 22 is 42.”"
)

// sumScript needs echo, then get-sum: the arguments of the second come from the
// result of the first, and the answer from the result of the second. A request
// that offers no such tools is told so.
func sumScript(ask chatRequest) turn {
	results := ask.results()
	if !ask.offers("echo") || !ask.offers("get-sum") {
		return turn{Text: "Nobody offered me echo and get-sum.", Usage: tokens(5, 7)}
	}
	switch len(results) {
	case 0:
		return turn{
			Text:  sumOpening,
			Calls: []seenCall{{ID: "call_echo", Name: "echo", Arguments: `{"message":"20 22"}`}},
			Usage: tokens(11, 5),
		}
	case 1:
		numbers := numbersIn(results[0])
		if len(numbers) != 2 {
			return unexpected("two numbers", results[0])
		}
		arguments := fmt.Sprintf(`{"a":%d,"b":%d}`, numbers[0], numbers[1])
		return turn{Calls: []seenCall{{ID: "call_sum", Name: "get-sum", Arguments: arguments}}, Usage: tokens(23, 7)}
	default:
		numbers := numbersIn(results[1])
		if len(numbers) == 0 {
			return unexpected("a sum", results[1])
		}
		text := fmt.Sprintf("Twice checked: %d it is, since the tool says “%s”", numbers[len(numbers)-1], results[1])
		return turn{Text: text, Usage: tokens(41, 13)}
	}
}

// unexpected is a provider's refusal that names what a tool result lacked.
func unexpected(want, got string) turn {
	return turn{Status: http.StatusBadRequest, Message: fmt.Sprintf("expected %s in the tool result %q", want, got)}
}

// numbersIn lists the whole numbers in text.
func numbersIn(text string) []int {
	var numbers []int
	for _, digits := range regexp.MustCompile(`\d+`).FindAllString(text, -1) {
		if n, err := strconv.Atoi(digits); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// The client's own tool, as a client declares it.
const localTimeTool = "get_local_time"

func clientTool(name string) object {
	return object{"type": "function", "function": object{
		"name": name, "description": "The wall clock at a place, as the client knows it.",
		"parameters": object{
			"type": "object", "properties": object{"place": object{"type": "string"}}, "required": []string{"place"},
		},
	}}
}

// mixedScript asks for the gateway's echo and the client's get_local_time in one
// turn, and answers with both results.
func mixedScript(ask chatRequest) turn {
	results := ask.results()
	switch len(results) {
	case 0:
		return turn{
			Text: "Both at once.",
			Calls: []seenCall{
				{ID: "call_echo", Name: "echo", Arguments: `{"message":"good morning"}`},
				{ID: "call_time", Name: localTimeTool, Arguments: `{"place":"Kyoto"}`},
			},
			Usage: tokens(17, 9),
		}
	case 2:
		return turn{Text: strings.Join(results, " / "), Usage: tokens(29, 6)}
	default:
		return unexpected("a result of each of two calls", strings.Join(results, " / "))
	}
}

const mixedAnswer = "Echo: good morning / 12:34 in Kyoto"
