package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// speechBytes is the size of a large file: as much as OpenAI takes. While the gateway relays it, it holds less than
// half of that in memory beside what an idle gateway holds.
const speechBytes = 25 << 20

// testEndpoints uses what the gateway relays beside chat and responses.
func testEndpoints(t *testing.T, s *site) { // P63
	up := startEndpointUpstream(t)
	g := s.startGateway(t, up.URL, []object{})
	c := nodeClient{node: s.node, script: "endpoints.mjs"}
	use := func(helper string) ask { return ask{BaseURL: g.url + "/v1", Key: devKey, Helper: helper} }
	for _, tt := range []struct {
		helper string
		paths  []string
		text   string
	}{
		{"embeddings", []string{"/embeddings"}, ""},
		{"pictures", []string{"/images/generations", "/images/edits"}, ""},
		{"moderation", []string{"/moderations"}, ""},
		{"completion", []string{"/completions"}, "Once upon a time"},
	} {
		t.Run(tt.helper, func(t *testing.T) {
			wantEqual(t, "text", tt.text, answer(t, c, use(tt.helper)).Text)
			wantEqual(t, "requests at the provider", tt.paths, up.take())
		})
	}
	t.Run("transcription of a large file", func(t *testing.T) {
		question := use("transcription")
		var sum string
		question.Path, sum = speechFile(t)
		idle := newPeak(t, g.serving.pid)
		wantEqual(t, "SHA-256 of the file at the provider", sum, answer(t, c, question).Text)
		wantEqual(t, "requests at the provider", []string{"/audio/transcriptions"}, up.take())
		if held := memory(t, g.serving.pid, "VmHWM:") - idle; held > speechBytes/2 {
			t.Errorf("the gateway held up to %d bytes more while it relayed a file of %d bytes, want at most %d", held, speechBytes, speechBytes/2)
		}
	})
	t.Run("speech", func(t *testing.T) {
		e := c.start(t, use("speech"))
		wantEqual(t, "text while the provider speaks", "good ", await(t, "the first bytes of the speech", e.firstText))
		up.goOn <- struct{}{}
		got := e.wait(t)
		if got.Error != nil {
			t.Fatalf("%s raised %+v", c.name(), *got.Error)
		}
		wantEqual(t, "text", "good morning", got.Text)
		up.take()
	})
	t.Run("files", func(t *testing.T) {
		answer(t, c, use("files"))
		if got := up.take(); len(got) > 0 {
			t.Errorf("the provider got %v", got)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		answer(t, c, use("refusals"))
		for _, path := range up.take() { // what the provider itself refuses
			wantEqual(t, "request at the provider", "/moderations", path)
		}
	})
	g.wantRunning(t)
}

// speechFile makes a file that does not compress, and returns its path and its SHA-256.
func speechFile(t *testing.T) (path, sum string) {
	t.Helper()
	data := make([]byte, speechBytes)
	noise := uint64(1)
	for i := 0; i < len(data); i += 8 {
		noise = noise*6364136223846793005 + 1442695040888963407
		binary.BigEndian.PutUint64(data[i:], noise)
	}
	path = filepath.Join(t.TempDir(), "speech.mp3")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(data)
	return path, hex.EncodeToString(hash[:])
}

// newPeak makes the peak of a process's memory begin anew, which only Linux can, and returns what it has now.
func newPeak(t *testing.T, pid int) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the peak of a process's memory is read from /proc")
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return memory(t, pid, "VmRSS:")
}

// memory returns a size from the status of the process, in bytes.
func memory(t *testing.T, pid int, name string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(status), name)
	var kib int64
	if _, err := fmt.Sscanf(text, "%d kB", &kib); !found || err != nil {
		t.Fatalf("no %s in %s", name, status)
	}
	t.Logf("%s %.1f MiB", name, float64(kib)/1024)
	return kib << 10
}

// endpointUpstream is a provider with the endpoints beside chat and responses. It answers what a
// real one would, with text in place of pictures and sound.
type endpointUpstream struct {
	*httptest.Server
	goOn chan struct{} // ends the pause of a speech

	mu    sync.Mutex
	paths []string // of the requests that the provider took; guarded by mu
}

func startEndpointUpstream(t *testing.T) *endpointUpstream {
	u := &endpointUpstream{goOn: make(chan struct{}, 1)}
	u.Server = httptest.NewServer(u)
	t.Cleanup(func() {
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

// take returns the paths since the last take.
func (u *endpointUpstream) take() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	paths := u.paths
	u.paths = nil
	return paths
}

// ServeHTTP implements http.Handler.
func (u *endpointUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1")
	u.mu.Lock()
	u.paths = append(u.paths, path)
	u.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+upKey {
		writeObject(w, http.StatusUnauthorized, object{"error": object{"message": "wrong key"}})
		return
	}
	asked, err := readEndpointRequest(r)
	if err != nil {
		writeObject(w, http.StatusBadRequest, object{"error": object{"message": err.Error()}})
		return
	}
	switch path + " " + asked.Model {
	case "/embeddings embed-1":
		u.embed(w, asked)
	case "/images/generations draw-1":
		writeObject(w, http.StatusOK, pictureAnswer(asked.Prompt+", drawn"))
	case "/images/edits draw-1":
		writeObject(w, http.StatusOK, pictureAnswer(asked.Prompt+", drawn over "+asked.file))
	case "/moderations judge-1":
		writeObject(w, http.StatusOK, object{"id": "modr-1", "model": "judge-1", "results": []object{{"flagged": true, "categories": object{}, "category_scores": object{}}}})
	case "/moderations busy-1":
		w.Header().Set("X-Should-Retry", "false")
		writeObject(w, http.StatusTooManyRequests, object{"error": object{"message": "the provider is busy", "code": "slow_down"}})
	case "/audio/transcriptions hear-1":
		writeObject(w, http.StatusOK, object{"text": asked.sum, "usage": object{"type": "duration", "seconds": 60}})
	case "/audio/speech talk-1":
		w.Header().Set("Content-Type", "audio/mpeg")
		_, _ = io.WriteString(w, "good ")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-u.goOn:
		case <-r.Context().Done():
			return
		}
		_, _ = io.WriteString(w, "morning")
	case "/completions write-1":
		w.Header().Set("Content-Type", "text/event-stream")
		for _, text := range []string{"Once ", "upon ", "a time"} {
			fmt.Fprintf(w, "data: %s\n\n", marshal(object{"id": "cmpl-1", "object": "text_completion", "choices": []object{{"index": 0, "text": text}}}))
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	default:
		writeObject(w, http.StatusNotFound, object{"error": object{"message": "no " + path + " with the model " + asked.Model}})
	}
}

// embed answers as the client wants its numbers: as base64 of little-endian float32, or as numbers.
func (u *endpointUpstream) embed(w http.ResponseWriter, asked endpointRequest) {
	vectors := [][]float32{{0.5, -1}, {0.25, 2}}
	var data []object
	for i := range asked.Input {
		var embedding any = vectors[i]
		if asked.EncodingFormat == "base64" {
			var raw []byte
			for _, number := range vectors[i] {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(number))
			}
			embedding = base64.StdEncoding.EncodeToString(raw)
		}
		data = append(data, object{"object": "embedding", "index": i, "embedding": embedding})
	}
	writeObject(w, http.StatusOK, object{"object": "list", "data": data, "model": asked.Model, "usage": object{"prompt_tokens": 5, "total_tokens": 5}})
}

func pictureAnswer(text string) object {
	return object{"created": 1, "data": []object{{"b64_json": base64.StdEncoding.EncodeToString([]byte(text))}}}
}

func writeObject(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(marshal(body))
}

// endpointRequest is what the provider reads of a request.
type endpointRequest struct {
	Model          string `json:"model"`
	Prompt         string `json:"prompt"`
	Input          texts  `json:"input"`
	EncodingFormat string `json:"encoding_format"`

	file string // its name, size and type
	sum  string // its SHA-256
}

// texts is a text or a list of texts.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (x *texts) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		*x = texts{""}
		return json.Unmarshal(data, &(*x)[0])
	}
	return json.Unmarshal(data, (*[]string)(x))
}

// readEndpointRequest reads JSON or a form, as the client sends it.
func readEndpointRequest(r *http.Request) (asked endpointRequest, err error) {
	parts, err := r.MultipartReader()
	if err != nil {
		err = json.NewDecoder(r.Body).Decode(&asked)
		return asked, err
	}
	for {
		part, err := parts.NextPart()
		if err == io.EOF {
			return asked, nil
		}
		if err != nil {
			return asked, err
		}
		hash := sha256.New()
		var text strings.Builder
		to := io.Writer(&text)
		if part.FileName() != "" {
			to = hash
		}
		n, err := io.Copy(to, part)
		if err != nil {
			return asked, err
		}
		switch name := part.FormName(); {
		case part.FileName() != "":
			asked.file = fmt.Sprintf("%s of %d bytes, %s", part.FileName(), n, part.Header.Get("Content-Type"))
			asked.sum = hex.EncodeToString(hash.Sum(nil))
		case name == "model":
			asked.Model = text.String()
		case name == "prompt":
			asked.Prompt = text.String()
		}
	}
}
