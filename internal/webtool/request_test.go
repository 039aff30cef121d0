package webtool

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestDefinitionsAreConstantAndValid(t *testing.T) {
	first, second := New(Options{Client: http.DefaultClient}), New(Options{Client: http.DefaultClient})
	a, _ := first.List(t.Context())
	b, _ := second.List(t.Context())
	for i := range a {
		one, _ := json.Marshal(a[i].Definition())
		two, _ := json.Marshal(b[i].Definition())
		if !bytes.Equal(one, two) || !json.Valid(a[i].Definition().InputSchema) {
			t.Errorf("%s: %s", a[i].Definition().Name, one)
		}
	}
	if got := tool.ClassOf(a[0]); got != tool.Once {
		t.Errorf("http_request is %s", got)
	}
}

// What is sent, and what comes back. // E04
func TestRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":7}`)
	})
	w := newWeb(t, nil)
	text, failed := w.text(RequestName, map[string]any{
		"url": s.URL + "/a b/ü?q=ü x#part", "method": "POST", "body": `{"n":1}`, "headers": map[string]string{"content-type": "application/json", "X-Team": "a"},
	})
	if failed || text != "201 Created\nContent-Type: application/json\n\n{\"id\":7}" {
		t.Errorf("%v %q", failed, text)
	}
	if got.Method != "POST" || got.RequestURI != "/a%20b/%C3%BC?q=%C3%BC%20x" || string(body) != `{"n":1}` || got.Header.Get("X-Team") != "a" ||
		got.Header.Get("Content-Type") != "application/json" || got.Header.Get("Accept-Encoding") != "" {
		t.Errorf("%s %s %v %q", got.Method, got.RequestURI, got.Header, body)
	}
}

// A body is 10,000 characters at most, also one that is compressed or whose characters are long. // E04
func TestAResponseIsBounded(t *testing.T) {
	long := strings.Repeat("ü", 3*MaxRequestCharacters)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		switch r.URL.Path {
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 50_000 {
				if _, err := io.WriteString(z, strings.Repeat("x", 4096)); err != nil {
					return // the reader has enough
				}
			}
			_ = z.Close()
		case "/endless":
			for {
				if _, err := io.WriteString(w, long); err != nil {
					return
				}
			}
		default:
			_, _ = io.WriteString(w, long)
		}
	})
	w := newWeb(t, nil)
	for _, path := range []string{"/", "/gzip", "/endless"} {
		text, _ := w.text(RequestName, map[string]string{"url": s.URL + path})
		_, body, _ := strings.Cut(text, "\n\n")
		body, notice, _ := strings.Cut(body, "\n\n")
		if utf8.RuneCountInString(body) != MaxRequestCharacters || !strings.Contains(notice, "Truncated") || !utf8.ValidString(body) {
			t.Errorf("%s: %d characters, %q", path, utf8.RuneCountInString(body), notice)
		}
	}
}

func TestWhatIsNoText(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/latin":
			w.Header().Set("Content-Type", "text/plain; charset=iso-8859-1")
			_, _ = w.Write([]byte{'c', 'a', 'f', 0xe9})
		case "/utf16":
			w.Header().Set("Content-Type", "text/plain; charset=utf-16le")
			_, _ = w.Write([]byte{'h', 0, 'i', 0})
		case "/png":
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write([]byte("\x89PNG\r\n\x1a\n\x00\x00"))
		case "/br":
			w.Header().Set("Content-Encoding", "br")
			_, _ = w.Write([]byte("xyz"))
		case "/notgzip":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("xyz"))
		case "/missing":
			http.NotFound(w, r)
		}
	})
	w := newWeb(t, nil)
	for path, want := range map[string]string{
		"/latin": "café", "/utf16": "hi", "/png": "[content that is not text: image/png]", "/br": `content encoding \"br\"`, "/notgzip": "is not gzip", "/missing": "404 Not Found",
	} {
		text, failed := w.text(RequestName, map[string]string{"url": s.URL + path})
		if !strings.Contains(text, want) || failed != slices.Contains([]string{"/br", "/notgzip", "/missing"}, path) {
			t.Errorf("%s: %v %q, want %q", path, failed, text, want)
		}
	}
}

// Arguments that no request is made of. The model is told why. // E04
func TestRequestsThatAreRefused(t *testing.T) {
	asked := false
	s := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	w := newWeb(t, nil)
	w.settings = org.Web{HTTPHosts: []string{"127.0.0.1", "*.example.com"}, HTTPMethods: []string{"GET", "POST"}}
	for arguments, want := range map[string]string{
		`{}`:                                                                 "the URL is empty",
		`{"url":7}`:                                                          "the argument url has the wrong type",
		`{"url":"x y"}`:                                                      "must begin with https://",
		`{"url":"file:///etc/passwd"}`:                                       "must begin with https://",
		`{"url":"https://"}`:                                                 "no host",
		`{"url":"https://u:p@example.com/"}`:                                 "user name",
		`{"url":"https://other.example.net/"}`:                               "not allowed here",
		`{"url":"https://example.com/"}`:                                     "not allowed here", // *.example.com is below it
		`{"url":"https://evilexample.com/"}`:                                 "not allowed here",
		`{"url":"` + s.URL + `","method":"PUT"}`:                             "web.http_methods",
		`{"url":"` + s.URL + `","method":"TRACE"}`:                           "is not possible",
		`{"url":"` + s.URL + `","body":"x"}`:                                 "has no body",
		`{"url":"` + s.URL + `","follow":true}`:                              "is not known",
		`{"url":"` + s.URL + `"} {}`:                                         "after top-level value",
		`{"url":"` + strings.Repeat("x", 5000) + `"}`:                        "longer than",
		`{"url":"` + s.URL + `","headers":{"Host":"internal"}}`:              "cannot be set",
		`{"url":"` + s.URL + `","headers":{"X-Aws-Ec2-Metadata-Token":"x"}}`: "cannot be set",
		`{"url":"` + s.URL + `","headers":{"X-A":"a\r\nHost: b"}}`:           "is not valid",
		`{"url":"` + s.URL + `","method":"POST","body":"` + strings.Repeat("x", maxRequestBody+1) + `"}`: "longer than",
	} {
		text, failed := w.text(RequestName, arguments)
		var told struct{ Error, Setting string }
		if err := json.Unmarshal([]byte(text), &told); err != nil || !failed || !strings.Contains(text, want) {
			t.Errorf("%.100s: %v %s, want %q", arguments, failed, text, want)
		}
	}
	if asked {
		t.Error("a refused request was sent")
	}
}

// A forbidden address ends the run, as it does for other tools, no matter who chose the URL; also after a redirect. // E04
func TestAForbiddenAddressIsFatal(t *testing.T) {
	var target string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) })
	w := newWeb(t, nil)
	for _, url := range []string{
		"http://169.254.169.254/latest/meta-data/", "http://127.0.0.2/", "http://10.0.0.1/", "http://[::1]/", "http://0x7f.1/",
		"http://2130706433/", "http://metadata.internal/", "http://db/", "http://127.0.0.1:6379/",
	} {
		target = url
		for name, arguments := range map[string]string{"direct": url, "redirect": s.URL} {
			r, err := w.call(RequestName, map[string]string{"url": arguments})
			var fatal tool.Blocked
			if !errors.As(err, &fatal) || r.Parts != nil {
				t.Errorf("%s, %s: %v %s", name, url, err, item.PlainText(r.Parts))
				continue
			}
			if _, address := fatal.Blocked(); address != "" && strings.Contains(err.Error(), address) {
				t.Errorf("%s, %s: the error has the address: %v", name, url, err)
			}
			if name == "direct" && !errors.Is(err, tool.ErrNotSent) {
				t.Errorf("%s: %v is not known to be unsent", url, err)
			}
		}
	}
	target = "file:///etc/passwd"
	if _, err := w.call(RequestName, map[string]string{"url": s.URL}); !errors.As(err, new(tool.Blocked)) {
		t.Errorf("a redirect to a file: %v", err)
	}
}

// Redirects are followed for requests that read, as often as is allowed, and each host is checked; what was
// sent to one host does not go to another. // E04
func TestRedirects(t *testing.T) {
	var second http.Header
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		second = r.Header
		_, _ = io.WriteString(w, "there")
	})
	posts := 0
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusMovedPermanently)
		case "/near":
			http.Redirect(w, r, "/here#part", http.StatusFound)
		case "/here":
			_, _ = io.WriteString(w, "here "+r.Header.Get("Authorization"))
		case "/post":
			posts++
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/named":
			http.Redirect(w, r, "http://elsewhere.example.com/", http.StatusFound)
		default:
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		}
	})
	w := newWeb(t, nil)
	with := func(path, method string) map[string]any {
		return map[string]any{"url": s.URL + path, "method": method, "headers": map[string]string{"Authorization": "Bearer t"}}
	}
	if text, _ := w.text(RequestName, with("/near", "GET")); !strings.Contains(text, "here Bearer t") {
		t.Errorf("%q", text)
	}
	if text, _ := w.text(RequestName, with("/away", "GET")); !strings.Contains(text, "there") || second.Get("Authorization") != "" {
		t.Errorf("%q with %v", text, second)
	}
	second = nil
	if text, failed := w.text(RequestName, with("/post", "POST")); failed || !strings.HasPrefix(text, "307") || !strings.Contains(text, "Location: "+other.URL) || second != nil || posts != 1 {
		t.Errorf("%v %q", failed, text)
	}
	if text, failed := w.text(RequestName, with("/loop", "GET")); !failed || !strings.Contains(text, "redirects more than 5 times") {
		t.Errorf("%q", text)
	}
	w.settings.HTTPHosts = []string{"127.0.0.1"}
	if text, failed := w.text(RequestName, with("/named", "GET")); !failed || !strings.Contains(text, "web.http_hosts") {
		t.Errorf("%q", text)
	}
}

// A request that may write and whose answer is lost may have been carried out; one that reads has simply failed.
func TestALostAnswer(t *testing.T) {
	var requests atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	})
	w := newWeb(t, nil)
	r, err := w.call(RequestName, map[string]any{"url": s.URL, "method": "POST", "body": "x"})
	if err == nil || errors.Is(err, tool.ErrNotSent) || requests.Load() != 1 || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%v %v, %d requests", r, err, requests.Load())
	}
	if text, failed := w.text(RequestName, map[string]any{"url": s.URL}); !failed || !strings.Contains(text, "closed before") {
		t.Errorf("%q", text)
	}
	s.Close()
	if text, failed := w.text(RequestName, map[string]any{"url": s.URL, "method": "POST"}); !failed || !strings.Contains(text, "could not be reached") {
		t.Errorf("%q", text)
	}
}

// The memory of a call is counted before anything is sent.
func TestMemoryIsCountedFirst(t *testing.T) {
	asked := false
	s := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	w := newWeb(t, nil)
	tools, _ := w.source.List(t.Context())
	_, err := tools[0].Call(t.Context(), tool.Call{Arguments: json.RawMessage(fmt.Sprintf(`{"url":%q}`, s.URL)), Memory: &memory{limit: 1000}})
	if !errors.Is(err, tool.ErrNotSent) || asked {
		t.Errorf("%v, sent: %v", err, asked)
	}
}
