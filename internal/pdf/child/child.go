// Package child reads one PDF from standard input and writes its text to standard output. Only the hidden
// command "turnpike pdf-child" runs it, in a process of its own.
//
// PDFium runs as WebAssembly: it has no files, no network and no variables, and a limited memory. A PDF that
// takes the library over finds nothing there.
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/klippa-app/go-pdfium"
	pdfiumerrors "github.com/klippa-app/go-pdfium/errors"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/webassembly"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/turnpike-gateway/turnpike/internal/childproc"
	"github.com/turnpike-gateway/turnpike/internal/pdf"
)

const (
	maxInput  = 64 << 20
	pageBytes = 64 << 10 // of the memory of WebAssembly

	// addressSpace is enough for the compiler of WebAssembly, which reserves more than it uses.
	addressSpace = 4 << 30
)

// Main reads a PDF and returns the exit status. The argument is the directory of the compile cache; "" = none.
func Main(args []string) int {
	cache := ""
	if len(args) > 0 {
		cache = args[0]
	}
	err := childproc.LimitSelf(childproc.Limits{AddressSpace: addressSpace, CPUSeconds: pdf.CPUSeconds, FileSize: 128 << 20})
	if err == nil {
		err = read(cache, os.Stdin, os.Stdout)
	}
	var told *refusal
	switch {
	case errors.As(err, &told):
		fmt.Fprintln(os.Stderr, told.text)
		return childproc.Refused
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// refusal is an error whose text is for the model.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// read writes the text of a PDF.
func read(cache string, in io.Reader, out io.Writer) error {
	data, err := io.ReadAll(io.LimitReader(in, maxInput))
	if err != nil {
		return err
	}
	instance, end, err := start(cache)
	if err != nil {
		return fmt.Errorf("start PDFium: %w", err)
	}
	defer end()
	opened, err := instance.OpenDocument(&requests.OpenDocument{File: &data})
	switch {
	case errors.Is(err, pdfiumerrors.ErrPassword):
		return &refusal{"it needs a password"}
	case errors.Is(err, pdfiumerrors.ErrSecurity):
		return &refusal{"its encryption is not supported"}
	case err != nil:
		return &refusal{"it is damaged, or not a PDF"}
	}
	count, err := instance.FPDF_GetPageCount(&requests.FPDF_GetPageCount{Document: opened.Document})
	if err != nil {
		return &refusal{"it is damaged: its pages cannot be counted"}
	}
	w := bufio.NewWriter(out)
	written := 0
	for i := range min(count.PageCount, pdf.MaxPages) {
		page, err := instance.GetPageText(&requests.GetPageText{Page: requests.Page{ByIndex: &requests.PageByIndex{Document: opened.Document, Index: i}}})
		var text string
		if err != nil {
			text = fmt.Sprintf("[Page %d cannot be read]", i+1)
		} else {
			text = strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(page.Text, "\r\n", "\n"), "\r", "\n"))
		}
		if text == "" {
			continue
		}
		if written > 0 {
			text = "\n\n" + text
		}
		n, err := w.WriteString(text)
		if err != nil {
			return err
		}
		if written += n; written > pdf.MaxText {
			break
		}
	}
	if count.PageCount > pdf.MaxPages && written > 0 {
		fmt.Fprintf(w, "\n\n[Only the first %d of %d pages were read]", pdf.MaxPages, count.PageCount)
	}
	return w.Flush()
}

// start starts PDFium without files, and returns what ends it.
func start(cache string) (pdfium.Pdfium, func(), error) {
	config := wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesExceptionHandling).
		WithMemoryLimitPages(pdf.MaxMemory / pageBytes).WithDebugInfoEnabled(false)
	if cache != "" {
		compiled, err := wazero.NewCompilationCacheWithDir(cache)
		if err != nil {
			return nil, nil, err
		}
		config = config.WithCompilationCache(compiled)
	}
	pool, err := webassembly.Init(webassembly.Config{
		Context: context.Background(), MinIdle: 1, MaxIdle: 1, MaxTotal: 1, RuntimeConfig: config,
		FSConfig: wazero.NewFSConfig(), // without it, the library mounts the root directory
		Stdout:   io.Discard, Stderr: io.Discard,
	})
	if err != nil {
		return nil, nil, err
	}
	instance, err := pool.GetInstance(20 * time.Second)
	if err != nil {
		return nil, nil, err
	}
	return instance, func() { _ = pool.Close() }, nil
}
