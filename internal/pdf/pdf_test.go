package pdf_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/pdf"
	"github.com/turnpike-gateway/turnpike/internal/pdf/child"
)

// This program is its own child, as the gateway is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == pdf.Command {
		os.Exit(child.Main(os.Args[2:]))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(cache())
		os.Exit(status)
	}))
}

// document makes a PDF with these content streams, a page each. filter is that of the streams; "" = none.
func document(filter string, pages ...string) []byte {
	var b bytes.Buffer
	var offsets []int
	object := func(format string, args ...any) {
		offsets = append(offsets, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n", len(offsets))
		fmt.Fprintf(&b, format, args...)
		b.WriteString("\nendobj\n")
	}
	b.WriteString("%PDF-1.4\n")
	var kids strings.Builder
	for i := range pages {
		fmt.Fprintf(&kids, "%d 0 R ", 4+2*i)
	}
	object("<< /Type /Catalog /Pages 2 0 R >>")
	object("<< /Type /Pages /Kids [%s] /Count %d >>", kids.String(), len(pages))
	object("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
	for i, content := range pages {
		object("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Resources << /Font << /F1 3 0 R >> >> >>", 5+2*i)
		object("<< /Length %d %s >>\nstream\n%s\nendstream", len(content), filter, content)
	}
	at := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(offsets)+1)
	for _, o := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(offsets)+1, at)
	return b.Bytes()
}

func line(x, y int, text string) string {
	return fmt.Sprintf("BT /F1 12 Tf %d %d Td (%s) Tj ET\n", x, y, text)
}

var cache = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "pdf-cache")
	if err != nil {
		panic(err)
	}
	return dir
})

func reader(t *testing.T, o pdf.Options) *pdf.Reader {
	t.Helper()
	if o.Cache == "" {
		o.Cache = filepath.Join(cache(), "compiled")
	}
	r, err := pdf.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Text, tables, pages without text, and what is no complete PDF. // E10
func TestRead(t *testing.T) {
	r := reader(t, pdf.Options{})
	table := line(72, 700, "Name") + line(200, 700, "Price") + line(72, 680, "Tea") + line(200, 680, "3.50")
	whole := document("", line(72, 720, "The river rises in the hills."), table)
	for name, c := range map[string]struct {
		data      []byte
		want, err string
	}{
		"text and a table":                 {data: whole, want: "The river rises in the hills.|Name|Price|Tea|3.50"},
		"no text layer":                    {data: document("", "0 0 1 rg 100 100 200 200 re f"), want: ""},
		"many pages, one broken":           {data: document("", line(72, 720, "one"), "BT /F1 ((((", line(72, 720, "three")), want: "one|three"},
		"truncated":                        {data: whole[:60], err: "it is damaged, or not a PDF"},
		"no PDF":                           {data: []byte("hello"), err: "it is damaged, or not a PDF"},
		"nothing":                          {data: nil, err: "it is damaged, or not a PDF"},
		"pages that are their own parents": {data: bytes.ReplaceAll(whole, []byte("/Kids [4 0 R"), []byte("/Kids [2 0 R")), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := r.Read(t.Context(), c.data)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%q %v", text, err)
				}
				return
			}
			for want := range strings.SplitSeq(c.want, "|") {
				if err != nil && name != "pages that are their own parents" || !strings.Contains(text, want) {
					t.Errorf("%v: %q is not in %q", err, want, text)
				}
			}
			if c.want == "" && name == "no text layer" && text != "" {
				t.Errorf("%q", text)
			}
		})
	}
	// Half of a file that has its text near the beginning is repaired, or refused: it is no crash.
	if text, err := r.Read(t.Context(), whole[:len(whole)*2/3]); err == nil && !strings.Contains(text, "river") {
		t.Errorf("%q", text)
	}
}

// A PDF that decompresses to gigabytes ends at the limit of its process, and the next one is read.
func TestABombEndsInItsProcess(t *testing.T) {
	var once bytes.Buffer
	z := zlib.NewWriter(&once)
	chunk := []byte(strings.Repeat("q ", 512<<10))
	for range 600 { // 600 MB, more than the process may have
		if _, err := z.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	_ = z.Close()
	r := reader(t, pdf.Options{})
	begin := time.Now()
	text, err := r.Read(t.Context(), document("/Filter /FlateDecode", once.String()))
	t.Logf("%d bytes of text, %v, after %s", len(text), err, time.Since(begin).Round(time.Millisecond))
	if len(text) > 1000 {
		t.Errorf("%d bytes", len(text))
	}
	if text, err := r.Read(t.Context(), document("", line(72, 720, "after"))); err != nil || !strings.Contains(text, "after") {
		t.Errorf("%q %v", text, err)
	}
}

// A text that is too long is cut, and the process ends.
func TestTheTextIsBounded(t *testing.T) {
	var page strings.Builder
	for y := range 60 {
		page.WriteString(line(10, 780-y*12, strings.Repeat("abcdefghij", 100)))
	}
	pages := make([]string, 40)
	for i := range pages {
		pages[i] = page.String()
	}
	text, err := reader(t, pdf.Options{}).Read(t.Context(), document("", pages...))
	if err != nil || len(text) != pdf.MaxText {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// A call ends at its time limit, and with its context; its process is gone then.
func TestACallEnds(t *testing.T) {
	if err := reader(t, pdf.Options{}).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := reader(t, pdf.Options{Timeout: time.Nanosecond})
	if _, err := r.Read(t.Context(), document("")); err == nil || !strings.Contains(err.Error(), "takes longer than") {
		t.Error(err)
	}
	left := errors.New("left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(left)
	if _, err := r.Read(ctx, nil); !errors.Is(err, left) {
		t.Error(err)
	}
	gone, err := pdf.New(pdf.Options{Program: []string{filepath.Join(t.TempDir(), "none")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Read(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "could not be started") {
		t.Error(err)
	}
}
