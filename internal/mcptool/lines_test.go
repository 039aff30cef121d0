package mcptool

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// readLines reads all messages of src, at most max bytes each.
func readLines(src io.Reader, max int) (got []message) {
	l := &lines{src: bufio.NewReaderSize(src, 16), max: max}
	for {
		m, err := l.next()
		if err != nil {
			return got
		}
		got = append(got, m)
	}
}

func TestALineThatIsTooLongKeepsItsIDAndHarmsNoOther(t *testing.T) {
	for line, id := range map[string]string{
		`{"jsonrpc":"2.0","id":17,"result":"` + strings.Repeat("x", 99) + `"}`:                      "17",
		`{"result":{"id":1,"a":["id",{"id":2}],"s":"\"id\":3,\\"},"jsonrpc":"2.0" , "id" : "a-7" }`: `"a-7"`,
		`{"a":"` + strings.Repeat("y", 99) + `"}`:                                                   "",
		strings.Repeat("z", 99): "",
		`{"x":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `,"id":4}`: "4",
	} {
		got := readLines(strings.NewReader("\n  \r\n{\"id\":1}\r\n"+line+"\n{\"id\":2}"), 64)
		if len(got) != 3 || string(got[0].data) != `{"id":1}` || string(got[2].data) != `{"id":2}` {
			t.Fatalf("%s: %v", line, got)
		}
		if m := got[1]; !m.tooLarge || m.data != nil || string(m.id) != id {
			t.Errorf("%s: too large %v, id %s, want %s", line, m.tooLarge, m.id, id)
		}
	}
}

func TestALineOfExactlyTheLimitIsRead(t *testing.T) {
	for n, tooLarge := range map[int]bool{63: false, 64: false, 65: true} {
		got := readLines(strings.NewReader(strings.Repeat("x", n)+"\n"), 64)
		if len(got) != 1 || got[0].tooLarge != tooLarge {
			t.Errorf("%d bytes: %v", n, got)
		}
	}
}

func TestNoiseIsForgivenWithTime(t *testing.T) {
	var n noise
	now := time.Now()
	if err := n.add(maxNoise, now); err != nil {
		t.Error(err)
	}
	if err := n.add(1, now.Add(noiseTime)); !errors.Is(err, errFlood) {
		t.Error(err)
	}
	if err := n.add(maxNoise, now.Add(noiseTime+1)); err != nil {
		t.Error(err)
	}
}

// Messages do not depend on how the bytes arrive, and a line that is too long
// keeps the id that it has.
func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"id\":1}\n{\"result\":[{\"id\":2}],\"id\":\"x\"}\n\nnoise"))
	f.Add([]byte(`{"a\"":"}","id":3}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		const max = 8
		whole := readLines(bytes.NewReader(raw), max)
		split := readLines(iotest.OneByteReader(bytes.NewReader(raw)), max)
		if len(whole) != len(split) {
			t.Fatalf("%d messages, split %d", len(whole), len(split))
		}
		var large []message
		for i, m := range whole {
			s := split[i]
			if m.tooLarge != s.tooLarge || !bytes.Equal(m.data, s.data) || !bytes.Equal(m.id, s.id) {
				t.Fatalf("whole %+v, split %+v", m, s)
			}
			if m.tooLarge {
				large = append(large, m)
			}
		}
		for line := range bytes.SplitAfterSeq(raw, []byte("\n")) {
			if len(line) > max+1 { // with its end
				if len(large) == 0 {
					t.Fatalf("%q is not too large", line)
				}
				checkID(t, line, large[0])
				large = large[1:]
			}
		}
	})
}

// checkID compares the id of a message too large with what encoding/json finds.
func checkID(t *testing.T, line []byte, m message) {
	var plain map[string]json.RawMessage
	if json.Unmarshal(line, &plain) != nil || plain["id"] == nil || bytes.Count(line, []byte("id")) != 1 {
		return
	}
	if id := plain["id"]; len(id) < 100 && id[0] != '{' && id[0] != '[' && !bytes.Equal(id, m.id) {
		t.Fatalf("%s: id %s, want %s", line, m.id, id)
	}
}
