package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// ask posts a body and returns the answer, whose body the caller reads; nil
// when ctx ended before the answer began.
func ask(ctx context.Context, t *testing.T, url string, body []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer k")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	return resp
}

// waitForOpen waits until the server says that so many requests are open.
func waitForOpen(t *testing.T, url, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(10 * time.Second); got != want && time.Now().Before(end); {
		resp, err := http.Get(url + "/open")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		got = strings.TrimSpace(string(b))
	}
	if got != want {
		t.Fatalf("%s requests are open, want %s", got, want)
	}
}

func TestHolderStopsInTheMiddleAndCountsWhatIsOpen(t *testing.T) {
	srv := httptest.NewServer(CountOpen(PausingUpstream("k")))
	defer srv.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	body := RequestBody("s1", 0, true)
	sum, _, _ := ReadRequest(body)
	whole := StreamAnswer(sum)

	resp := ask(t.Context(), t, srv.URL+ChatPath, body)
	defer resp.Body.Close()
	begin := make([]byte, len(FirstPart(whole)))
	if _, err := io.ReadFull(resp.Body, begin); err != nil || string(begin) != string(whole[:len(begin)]) {
		t.Fatalf("beginning %q, error %v", begin, err)
	}
	waitForOpen(t, srv.URL, "1")

	leaving, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		if r := ask(leaving, t, srv.URL+ChatPath, RequestBody(SilentTag, 0, true)); r != nil {
			t.Errorf("a silent answer began with status %d", r.StatusCode)
			r.Body.Close()
		}
	}()
	waitForOpen(t, srv.URL, "2")
	leave()
	<-left
	waitForOpen(t, srv.URL, "1")

	ask(t.Context(), t, srv.URL+"/resume", nil).Body.Close()
	if rest, err := io.ReadAll(resp.Body); err != nil || string(begin)+string(rest) != string(whole) {
		t.Errorf("the rest has %d bytes, error %v", len(rest), err)
	}
	waitForOpen(t, srv.URL, "0")
}

func TestLoopWithoutAProviderSaysSo(t *testing.T) {
	l := &BareLoop{Provider: "http://127.0.0.1:0"}
	w := httptest.NewRecorder()
	l.ServeHTTP(w, httptest.NewRequest(http.MethodPost, ChatPath, strings.NewReader(`{"messages":[]}`)))
	if w.Code != http.StatusBadGateway {
		t.Errorf("status %d", w.Code)
	}
	w = httptest.NewRecorder()
	l.ServeHTTP(w, httptest.NewRequest(http.MethodPost, ChatPath, strings.NewReader(`{`)))
	if w.Code != http.StatusBadRequest {
		t.Errorf("status %d for a body that is no JSON", w.Code)
	}
}

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
			body := RequestBody("s03v1", tt.size, tt.stream)
			if len(body) < tt.least || len(body) > tt.top {
				t.Errorf("body has %d bytes, want %d to %d", len(body), tt.least, tt.top)
			}
			if !json.Valid(body) {
				t.Fatalf("body is no JSON: %.200s", body)
			}
			sum, stream, err := ReadRequest(body)
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
		if sum, _, err := ReadRequest([]byte(body)); err == nil {
			t.Errorf("ReadRequest(%.20q) = %+v, want an error", body, sum)
		}
	}
}

func TestAnswersTellRequestsApart(t *testing.T) {
	base := RequestBody("s00v0", 0, false)
	changed := bytes.Replace(base, []byte("0.2"), []byte("0.3"), 1)
	for _, other := range [][]byte{RequestBody("s00v1", 0, false), changed, append(bytes.Clone(base), ' ')} {
		a, _, _ := ReadRequest(base)
		b, _, _ := ReadRequest(other)
		if bytes.Equal(JSONAnswer(a), JSONAnswer(b)) || bytes.Equal(StreamAnswer(a), StreamAnswer(b)) {
			t.Errorf("%s and %s have the same answer", base, other)
		}
	}
}

func TestAnswersAreChatCompletions(t *testing.T) {
	sum := Sum{Tag: "s00v0", Bytes: 12, CRC: 0xbeef}
	if a := JSONAnswer(sum); !json.Valid(a) {
		t.Errorf("answer is no JSON: %s", a)
	}
	events := strings.SplitAfter(string(StreamAnswer(sum)), "\n\n")
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
