package wire

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
)

// The usage of a relayed answer is read while it passes, in pieces of any size. Without one, the
// output is estimated, and never 0. // P03
func TestMeter(t *testing.T) {
	long := strings.Repeat("x", 3*meterTail)
	for _, tt := range []struct {
		name, body string
		status     int
		want       model.Usage
	}{
		{"JSON", `{"choices":[{"message":{"content":"` + long + `"}}], "usage" : {"in":3,"out":{"n":1},"o":4}}`, 200, model.Usage{Input: 3, Output: 4}},
		{"a stream", "data: {\"usage\":null}\n\ndata: {\"usage\":{\"in\":3,\"o\":4}}\n\ndata: [DONE]\n\n", 200, model.Usage{Input: 3, Output: 4}},
		{"the last counts", `{"usage":{"in":1,"o":1}} {"usage":{"in":3,"o":4},"metadata":{"usage":"x","a":"\"usage\":{\"in\":9,\"o\":9}"}}`, 200, model.Usage{Input: 3, Output: 4}},
		{"a text that looks like it", `{"content":"\"usage\":{\"in\":9,\"o\":9}"}`, 200, model.Usage{Output: 14, Total: 14, Estimated: true}},
		{"three events", "data: {}\n\ndata: {}\n\ndata: {}\n\n", 200, model.Usage{Output: 3, Total: 3, Estimated: true}},
		{"cut in the middle", `{"content":"abc`, 200, model.Usage{Output: 5, Total: 5, Estimated: true}},
		{"cut in the usage", `{"usage":{"in":3,`, 200, model.Usage{Output: 6, Total: 6, Estimated: true}},
		{"an error", `{"error":{}}`, 429, model.Usage{}},
		{"long events", strings.Repeat("\ndata: "+strings.Repeat("y", 400), 10), 200, model.Usage{Output: 824, Total: 824, Estimated: true}},
	} {
		for _, piece := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, func(r io.Reader) io.Reader { return r }} {
			m := &usageMeter{ReadCloser: io.NopCloser(piece(strings.NewReader(tt.body))), status: tt.status, usageOf: func(v []byte) model.Usage {
				return model.Usage{Input: jsonscan.Number(jsonscan.Member(v, "in"), 0), Output: jsonscan.Number(jsonscan.Member(v, "o"), 0)}
			}}
			if read, err := io.ReadAll(m); err != nil || string(read) != tt.body {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if got := m.usage(); got != tt.want {
				t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
			}
			if cap(m.tail) > 2*meterTail {
				t.Errorf("%s: %d bytes are kept", tt.name, cap(m.tail))
			}
		}
	}
}

// A client may leave when it has the last event of a stream: what was counted before is all.
func TestMeterOfAStreamThatIsLeftAfterItsLastEvent(t *testing.T) {
	const counted = "data: {\"usage\":{\"in\":3,\"o\":4}}\n\n"
	for body, final := range map[string]bool{
		counted: false, counted + "data: [DONE]\n": false, counted + "data: [DONE]\n\n": true, counted + "data:[DONE]\r\n\r\n": true,
		"event: response.completed\n" + counted: true, "event: response.created\n" + counted: false,
		"data: {\"type\":\"response.incomplete\",\"usage\":{\"in\":3,\"o\":4}}\n\n":      true,
		"data: {\"type\":\"response.in_progress\",\"usage\":{\"in\":3,\"o\":4}}\n\n":     false,
		"data: {\"text\":\"\\n\\ndata: [DONE]\\n\\n\",\"usage\":{\"in\":3,\"o\":4}}\n\n": false,
	} {
		m := &usageMeter{status: 200, usageOf: func(v []byte) model.Usage {
			return model.Usage{Input: jsonscan.Number(jsonscan.Member(v, "in"), 0), Output: jsonscan.Number(jsonscan.Member(v, "o"), 0)}
		}}
		for i := range len(body) {
			m.add([]byte(body[i : i+1]))
		}
		if got := m.usage(); (got == model.Usage{Input: 3, Output: 4}) != final || got.Estimated == final {
			t.Errorf("%q: %+v", body, got)
		}
	}
}

// A schema of the client's is not the usage, wherever the provider repeats it.
func TestMeterOfAnAnswerThatRepeatsASchema(t *testing.T) {
	const schema = `"tools":[{"parameters":{"usage":{"in":1,"o":1}}}],"text":{"a":"}\\"}","usage":{"in":1,"o":1}}`
	for _, response := range []string{`{"usage":{"in":3,"o":4},` + schema + `}`, `{` + schema + `,"usage":{"in":3,"o":4},"metadata":{"a":"}"}}`} {
		for depth, body := range map[int]string{1: response, 2: "data: {\"response\":" + response + "}\n\ndata: [DONE]\n\n"} {
			m := &usageMeter{status: 200, depth: depth, ended: true, usageOf: func(v []byte) model.Usage {
				return model.Usage{Input: jsonscan.Number(jsonscan.Member(v, "in"), 0), Output: jsonscan.Number(jsonscan.Member(v, "o"), 0)}
			}}
			m.add([]byte(body))
			if got := m.usage(); got != (model.Usage{Input: 3, Output: 4}) {
				t.Errorf("%s: %+v", body, got)
			}
		}
	}
}

// The chunk with the usage alone is left out of a stream. All else passes as it came, in pieces of any size.
func TestAStreamWithoutTheChunkOfItsUsage(t *testing.T) {
	const usage = `"usage":{"in":3,"o":4}`
	long := "data: {\"choices\":[]," + usage + `,"x":"` + strings.Repeat("x", 2*maxHeldEvent) + "\"}\n\n"
	for name, tt := range map[string][]string{ // a piece that begins with a minus is left out
		"usual":                 {"data: {\"choices\":[{}]}\n\n", "-data: {\"choices\":[]," + usage + "}\n\n", "data: [DONE]\n\n"},
		"other line ends":       {": ping\r\n\r\n", "-data:{\"choices\":null, " + usage + "}\r\n\r\n", "data:[DONE]\r\n\r\n"},
		"at the end":            {"data: {\"choices\":[{}]}\n\n", "-data: {" + usage + "}"},
		"with choices":          {"data: {\"choices\":[{}]," + usage + "}\n\n", "data: [DONE]\n\n"},
		"no usage":              {"data: {\"choices\":[],\"usage\":null}\n\n", "data: \"usage\"\n\n", "data: {\"usage\"\n\n", "\n\n\n"},
		"an event that is long": {long, "-data: {\"choices\":[]," + usage + "}\n\n", long, "data: [DONE]"},
		"empty":                 {""},
	} {
		var body, want string
		for _, piece := range tt {
			left, out := strings.CutPrefix(piece, "-")
			body += left
			if !out {
				want += piece
			}
		}
		for _, piece := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader, func(r io.Reader) io.Reader { return r }} {
			w := &withoutUsage{usageMeter: &usageMeter{ReadCloser: io.NopCloser(piece(strings.NewReader(body)))}}
			if got, err := io.ReadAll(w); err != nil || string(got) != want {
				t.Errorf("%s: %v %.300q, want %.300q", name, err, got, want)
			}
		}
	}
	broken := &withoutUsage{usageMeter: &usageMeter{ReadCloser: io.NopCloser(io.MultiReader(strings.NewReader("data: {\"choi"), iotest.ErrReader(io.ErrUnexpectedEOF)))}}
	if got, err := io.ReadAll(broken); string(got) != "data: {\"choi" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q %v", got, err)
	}
}

// FuzzMeter: whatever passes, passes unchanged, and the usage is one that the answer says or an estimate.
func FuzzMeter(f *testing.F) {
	f.Add("data: {\"usage\":{\"in\":1}}\n\n", 7)
	f.Fuzz(func(t *testing.T, body string, piece int) {
		m := &usageMeter{ReadCloser: io.NopCloser(strings.NewReader(body)), status: 200, usageOf: func(v []byte) model.Usage {
			if !jsonscan.Valid(v) {
				t.Fatalf("no JSON: %q", v)
			}
			return model.Usage{Input: 1}
		}}
		var passed strings.Builder
		if _, err := io.CopyBuffer(struct{ io.Writer }{&passed}, m, make([]byte, 1+max(0, piece)%100)); err != nil || passed.String() != body {
			t.Fatal(fmt.Sprint(err), passed.String())
		}
		if u := m.usage(); !u.Estimated && u.Input != 1 || u.Output < 0 {
			t.Fatalf("%+v", u)
		}
	})
}
