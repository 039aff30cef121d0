package storagetool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/blob/disk"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/storagetool"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The names of the tools.
const (
	readTool  = builtin.StorageRead
	writeTool = builtin.StorageWrite
)

// bench has the tools of an org with buckets on disk.
type bench struct {
	*testing.T
	buckets []org.Bucket
	store   *disk.Store
	link    func(bucket, path string) (storagetool.Link, error)
	opened  error // what Open fails with
	tools   map[string]tool.Tool
}

func newBench(t *testing.T, buckets ...org.Bucket) *bench {
	store, err := disk.New(t.TempDir(), disk.Options{Limits: func() blob.Limits { return blob.Limits{} }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, buckets: buckets, store: store, tools: map[string]tool.Tool{}}
	b.link = func(bucket, path string) (storagetool.Link, error) {
		return storagetool.Link{URL: "https://gateway.example/" + bucket + "/" + path, ExpiresAt: time.Unix(1_800_000_000, 0)}, nil
	}
	source := storagetool.New(storagetool.Options{
		Org: "acme", Settings: func() []org.Bucket { return b.buckets }, Buckets: b, Log: slog.New(slog.DiscardHandler),
		Link: func(_ context.Context, bucket, path string) (storagetool.Link, error) { return b.link(bucket, path) },
	})
	all, err := source.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		b.tools[one.Definition().Name] = one
	}
	return b
}

// Open implements blob.Buckets.
func (b *bench) Open(_ context.Context, orgID, name string) (blob.Bucket, error) {
	i := slices.IndexFunc(b.buckets, func(one org.Bucket) bool { return one.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: %s", blob.ErrNoBucket, name)
	}
	if b.opened != nil {
		return nil, b.opened
	}
	return b.store.Bucket(disk.Space{Org: orgID}, b.buckets[i]), nil
}

func (b *bench) put(path, text string) {
	b.Helper()
	bucket, err := b.Open(b.Context(), "acme", b.buckets[0].Name)
	if err == nil {
		_, err = bucket.Put(b.Context(), path, strings.NewReader(text))
	}
	if err != nil {
		b.Fatal(err)
	}
}

// call returns the text of a result; that of an error begins with a !.
func (b *bench) call(name, arguments string) string {
	b.Helper()
	r, err := b.tools[name].Call(b.Context(), tool.Call{Arguments: json.RawMessage(arguments)})
	if err != nil {
		b.Fatalf("%s %s: %v", name, arguments, err)
	}
	if r.IsError {
		return "!" + r.Parts[0].Text
	}
	return r.Parts[0].Text
}

func (b *bench) want(name, arguments, want string) {
	b.Helper()
	if got := b.call(name, arguments); got != want {
		b.Errorf("%s %s:\n got %.300s\nwant %.300s", name, arguments, got, want)
	}
}

// What is written is what is read, and the result has the path and the size. // E07
func TestAWrittenFileIsRead(t *testing.T) {
	b := newBench(t, org.Bucket{Name: "docs"})
	b.want(writeTool, `{"path":"a/ü.txt","content":"<héllo>\n"}`, `{"bucket":"docs","path":"a/ü.txt","size":9}`)
	b.want(readTool, `{"operation":"download","path":"a/ü.txt"}`, "<héllo>\n")
	b.want(writeTool, `{"path":"a/ü.txt","content":""}`, `{"bucket":"docs","path":"a/ü.txt","size":0}`)
	b.want(readTool, `{"operation":"download","path":"a/ü.txt"}`, "")
}

// Files and their names may come from strangers: hooks see that what the model reads is untrusted.
func TestWhatIsReadIsUntrusted(t *testing.T) {
	b := newBench(t, org.Bucket{Name: "docs"})
	b.put("a", "x")
	b.put("binary", "\xff\xfe")
	for _, c := range []struct {
		tool, arguments string
		want            item.Label
	}{
		{readTool, `{"operation":"list"}`, item.Untrusted},
		{readTool, `{"operation":"download","path":"a"}`, item.Untrusted},
		{readTool, `{"operation":"download","path":"binary"}`, item.Untrusted},
		{readTool, `{"operation":"download","path":"missing"}`, ""},
		{writeTool, `{"path":"b","content":"x"}`, ""},
	} {
		r, err := b.tools[c.tool].Call(t.Context(), tool.Call{Arguments: json.RawMessage(c.arguments)})
		if err != nil || r.Label != c.want {
			t.Errorf("%s %s has the label %q, want %q; %v", c.tool, c.arguments, r.Label, c.want, err)
		}
	}
}

// A list has the files with a prefix, in parts. // E06
func TestAListHasParts(t *testing.T) {
	b := newBench(t, org.Bucket{Name: "docs"}, org.Bucket{Name: "other"})
	for _, path := range []string{"a/1", "a/2", "a/3", "b"} {
		b.put(path, "x")
	}
	var answer struct {
		Files []struct {
			Path       string
			Size       int64
			ModifiedAt time.Time `json:"modified_at"`
		}
		More       bool
		NextOffset int `json:"next_offset"`
	}
	list := func(arguments string) (out []string) {
		t.Helper()
		answer.More, answer.NextOffset = false, 0
		if err := json.Unmarshal([]byte(b.call(readTool, arguments)), &answer); err != nil {
			t.Fatal(err)
		}
		for _, f := range answer.Files {
			out = append(out, f.Path)
			if f.Size != 1 || f.ModifiedAt.IsZero() {
				t.Errorf("%+v", f)
			}
		}
		return out
	}
	if got := list(`{"operation":"list","bucket":"docs","prefix":"a/","limit":2}`); !slices.Equal(got, []string{"a/1", "a/2"}) || !answer.More || answer.NextOffset != 2 {
		t.Errorf("%v %+v", got, answer)
	}
	if got := list(`{"operation":"list","bucket":"docs","prefix":"a/","limit":2,"offset":2}`); !slices.Equal(got, []string{"a/3"}) || answer.More {
		t.Errorf("%v %+v", got, answer)
	}
	b.want(readTool, `{"operation":"list","bucket":"other"}`, `{"bucket":"other","files":[],"more":false}`)
}

// A list is cut before it is longer than a text may be, and says where to go on.
func TestALongListIsCut(t *testing.T) {
	b := newBench(t, org.Bucket{Name: "docs"})
	const files = 120
	for i := range files {
		b.put(fmt.Sprintf("%s/%s/%s/%03d", strings.Repeat("x", 190), strings.Repeat("y", 190), strings.Repeat("z", 190), i), "")
	}
	seen := 0
	for {
		text := b.call(readTool, fmt.Sprintf(`{"operation":"list","limit":1000,"offset":%d}`, seen))
		var answer struct {
			Files      []struct{ Path string }
			More       bool
			NextOffset int `json:"next_offset"`
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || len(text) > storagetool.MaxCharacters {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
		for i, f := range answer.Files {
			if !strings.HasSuffix(f.Path, fmt.Sprintf("/%03d", seen+i)) {
				t.Fatal(f.Path)
			}
		}
		seen += len(answer.Files)
		if !answer.More {
			break
		}
		if answer.NextOffset != seen {
			t.Fatal(answer.NextOffset)
		}
	}
	if seen != files {
		t.Errorf("%d files were listed", seen)
	}
}

// memory counts what a call keeps.
type memory struct{ held, most int }

func (m *memory) Acquire(n int) error {
	m.held, m.most = m.held+n, max(m.most, m.held+n)
	return nil
}

func (m *memory) Release(n int) { m.held -= n }

// A long text is read in parts of whole characters, which are the text together. // E06
func TestALongTextIsReadInParts(t *testing.T) {
	b := newBench(t, org.Bucket{Name: "docs"})
	long := strings.Repeat("aé€😀\n", 25_000)
	b.put("long", long)
	var all strings.Builder
	for offset := 0; ; {
		m := &memory{}
		r, err := b.tools[readTool].Call(t.Context(), tool.Call{Memory: m, Arguments: fmt.Appendf(nil, `{"operation":"download","path":"long","offset":%d}`, offset)})
		if err != nil || r.IsError {
			t.Fatalf("%+v, %v", r, err)
		}
		text, notice, more := strings.Cut(r.Parts[0].Text, "\n\n[Truncated: ")
		if n := len([]rune(text)); n > storagetool.MaxCharacters || m.held > len(text) || m.most > 4*storagetool.MaxCharacters+1 {
			t.Errorf("%d characters; %+v", n, m)
		}
		all.WriteString(text)
		offset += len(text)
		if !more {
			break
		}
		if !strings.Contains(notice, fmt.Sprintf("of %d; call again with offset %d for more]", len(long), offset)) {
			t.Fatal(notice)
		}
	}
	if all.String() != long {
		t.Errorf("%d bytes in parts, want %d", all.Len(), len(long))
	}
	b.put("short", "a€b")
	b.want(readTool, `{"operation":"download","path":"short","offset":2}`, "b")
	b.want(readTool, `{"operation":"download","path":"short","offset":5}`, `!{"error":"offset must be less than the size of the file, which is 5 bytes"}`)
}

// A file that is not text is answered with a URL that expires, or with what to set. // E06
func TestAFileThatIsNotText(t *testing.T) {
	b := newBench(t, org.Bucket{Name: "docs"})
	png := "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	b.put("chart.png", png)
	b.put("latin", "caf\xe9")
	b.put("cut", strings.Repeat("x", 300_000)+"\xff")
	b.want(readTool, `{"operation":"download","path":"chart.png"}`,
		`{"bucket":"docs","path":"chart.png","size":16,"media_type":"image/png","signed_url":"https://gateway.example/docs/chart.png","expires_at":"2027-01-15T08:00:00Z"}`)
	if got := b.call(readTool, `{"operation":"download","path":"latin"}`); !strings.Contains(got, "signed_url") {
		t.Error(got)
	}
	if got := b.call(readTool, `{"operation":"download","path":"cut"}`); !strings.Contains(got, "[Truncated") {
		t.Errorf("%.100s", got)
	}
	b.link = func(string, string) (storagetool.Link, error) {
		return storagetool.Link{}, &storagetool.MissingError{Why: "public_url is not set", Setting: "public_url"}
	}
	b.want(readTool, `{"operation":"download","path":"chart.png"}`, `!{"error":"public_url is not set","setting":"public_url"}`)
}

// What is missing or wrong is an answer that says what to do. Settings act on the next call. // C22
func TestWhatIsMissing(t *testing.T) {
	b := newBench(t)
	for name, arguments := range map[string]string{readTool: `{"operation":"list"}`, writeTool: `{"path":"x","content":"x"}`} {
		b.want(name, arguments, `!{"error":"Storage is not configured: the org has no bucket","setting":"buckets"}`)
	}
	b.buckets = []org.Bucket{{Name: "docs", Quota: 1 << 20, MaxFile: 1 << 20}, {Name: "other"}}
	b.want(readTool, `{"operation":"list"}`, `!{"error":"bucket is missing; the buckets are docs, other"}`)
	b.want(readTool, `{"operation":"list","bucket":"none"}`, `!{"error":"bucket \"none\" does not exist"}`)
	b.buckets = b.buckets[:1]
	b.want(readTool, `{"operation":"download","path":"none"}`, `!{"error":"there is no such file; list the files to see their paths"}`)
	b.want(readTool, `{"operation":"download"}`, `!{"error":"path is empty"}`)
	b.want(readTool, `{"operation":"delete"}`, `!{"error":"operation must be list or download"}`)
	b.want(readTool, `{"operation":"list","limit":1001}`, `!{"error":"limit must be from 1 to 1000"}`)
	b.want(writeTool, `{"path":"../x","content":"x"}`, `!{"error":"path contains the name .."}`)
	b.want(writeTool, `{"path":"x"}`, `!{"error":"content is missing"}`)
	big, _ := json.Marshal(map[string]string{"path": "x", "content": strings.Repeat("x", 1<<20+1)})
	b.want(writeTool, string(big), `!{"error":"the file has 1048577 bytes; a file of the bucket may have at most 1048576","setting":"max_file_mib of the bucket"}`)
	b.opened = &blob.RefusedError{Why: "the service refused the credentials", Setting: "buckets", Err: errors.New("secret")}
	b.want(writeTool, `{"path":"x","content":"x"}`, `!{"error":"the service refused the credentials","setting":"buckets"}`)
	b.opened = errors.New("/data/secret")
	b.want(writeTool, `{"path":"x","content":"x"}`, `!{"error":"the bucket cannot be used at the moment; the log of the gateway says why"}`)
}

// blocked is a refusal of the outbound policy.
type blocked struct{ error }

func (blocked) Blocked() (string, string) { return "private", "10.0.0.1" }

// A refusal of the outbound policy ends the run: the model does not learn of it. So does the end of the caller.
func TestWhatEndsTheRun(t *testing.T) {
	b := newBench(t, org.Bucket{Name: "docs"})
	b.opened = fmt.Errorf("bucket docs: %w", blocked{errors.New("blocked")})
	var fatal tool.Blocked
	if _, err := b.tools[readTool].Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"operation":"list"}`)}); !errors.As(err, &fatal) {
		t.Error(err)
	}
	b.opened = nil
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := b.tools[writeTool].Call(ctx, tool.Call{Arguments: json.RawMessage(`{"path":"x","content":"x"}`)}); !errors.Is(err, gone) {
		t.Error(err)
	}
}

// Reading may be repeated, writing may not. Definitions have constant bytes.
func TestDefinitions(t *testing.T) {
	a, b := newBench(t), newBench(t, org.Bucket{Name: "docs"})
	for name, want := range map[string]tool.Class{readTool: tool.Read, writeTool: tool.Once} {
		if got := tool.ClassOf(a.tools[name]); got != want {
			t.Errorf("%s is %s", name, got)
		}
		one, _ := json.Marshal(a.tools[name].Definition())
		two, _ := json.Marshal(b.tools[name].Definition())
		if string(one) != string(two) || !json.Valid(a.tools[name].Definition().InputSchema) {
			t.Errorf("%s\n%s", one, two)
		}
	}
}
