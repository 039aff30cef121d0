package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestBody(t *testing.T) {
	for _, tt := range []struct {
		name       string
		size       int
		stream     bool
		least, top int
	}{
		{"a small body is small", 0, false, 100, 300},
		{"a small stream request says stream", 0, true, 100, 300},
		{"a large body is as large as asked for", 100_000, false, 100_000, 103_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := Body("s03v1", tt.size, tt.stream)
			if len(body) < tt.least || len(body) > tt.top {
				t.Errorf("body has %d bytes, want %d to %d", len(body), tt.least, tt.top)
			}
			if !json.Valid(body) {
				t.Fatalf("body is no JSON: %.200s", body)
			}
			sum, stream, err := Read(body)
			if err != nil {
				t.Fatal(err)
			}
			if sum.Tag != "s03v1" || sum.Bytes != len(body) || stream != tt.stream {
				t.Errorf("Read = %+v, stream %v", sum, stream)
			}
		})
	}
}

func TestReadRefusesForeignBodies(t *testing.T) {
	for _, body := range []string{"", "{}", `{"user":"s1`, strings.Repeat(" ", headBytes) + `{"user":"s1"}`} {
		if sum, _, err := Read([]byte(body)); err == nil {
			t.Errorf("Read(%.20q) = %+v, want an error", body, sum)
		}
	}
}

func TestAnswersTellRequestsApart(t *testing.T) {
	base := Body("s00v0", 0, false)
	changed := bytes.Replace(base, []byte("0.2"), []byte("0.3"), 1)
	for _, other := range [][]byte{Body("s00v1", 0, false), changed, append(bytes.Clone(base), ' ')} {
		a, _, _ := Read(base)
		b, _, _ := Read(other)
		if bytes.Equal(JSON(a), JSON(b)) || bytes.Equal(Stream(a), Stream(b)) {
			t.Errorf("%s and %s have the same answer", base, other)
		}
	}
}

func TestAnswersAreChatCompletions(t *testing.T) {
	sum := Sum{Tag: "s00v0", Bytes: 12, CRC: 0xbeef}
	if a := JSON(sum); !json.Valid(a) {
		t.Errorf("answer is no JSON: %s", a)
	}
	events := strings.SplitAfter(string(Stream(sum)), "\n\n")
	if len(events) != StreamChunks+2 || events[StreamChunks] != "data: [DONE]\n\n" {
		t.Fatalf("stream has %d parts, the last but one is %q", len(events), events[len(events)-2])
	}
	text := ""
	for _, e := range events[:StreamChunks] {
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &chunk); err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		text += chunk.Choices[0].Delta.Content
	}
	if last := fmt.Sprint(" word", StreamChunks-2); !strings.HasSuffix(text, last) {
		t.Errorf("text ends in %q, want %q", text[len(text)-20:], last)
	}
}
