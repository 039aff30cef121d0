package sse_test

import (
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/sse"
)

func ExampleReader() {
	r := sse.NewReader(strings.NewReader(": hello\n\nevent: greeting\ndata: one\r\ndata: two\n\n"), sse.ReaderOptions{})
	for {
		ev, err := r.Next()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %q\n", ev.Name, ev.Data)
	}
	// Output:
	// greeting "one\ntwo"
	// EOF
}

func ExampleWriter() {
	rec := httptest.NewRecorder()
	w := sse.NewWriter(rec, sse.Options{})
	defer w.Close()
	_ = w.Event([]byte(`{"text":"hello"}`))
	_ = w.Named("done", []byte("two\nlines"))
	fmt.Print(rec.Body)
	// Output:
	// data: {"text":"hello"}
	//
	// event: done
	// data: two
	// data: lines
}
