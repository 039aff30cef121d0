package main

import (
	"strings"
	"testing"
)

func TestSkippedTestsAreListedWithTheirReason(t *testing.T) {
	const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:3: other: words\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: needs curl: not installed\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}
{"Action":"skip","Package":"without tests"}
`
	const want = "skipped  p TestA: needs curl: not installed\n1 tests passed, 1 were skipped, 0 failed\n"
	var out strings.Builder
	if err := list(strings.NewReader(events), &out); err != nil || out.String() != want {
		t.Errorf("error %v, output\n%s", err, &out)
	}
}

func TestWhatFailedIsPrintedWithAllThatItSaid(t *testing.T) {
	for name, tt := range map[string]struct{ events, want string }{
		"a test": {`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestA"}`, "FAILED   p TestA\n    a_test.go:7: 1, want 2\n"},
		"a package, which says why itself": {`{"Action":"output","Package":"p","Output":"panic: no\n"}
{"Action":"fail","Package":"p"}`, "FAILED   p \npanic: no\n"},
		"a build":   {`{"ImportPath":"p","Action":"build-output","Output":"a.go:1:1: oops\n"}` + "\n" + `{"ImportPath":"p","Action":"build-fail"}`, "a.go:1:1: oops\n"},
		"nothing":   {"", "0 tests passed"},
		"not JSON":  {"go: no such package", ""},
		"half JSON": {`{"Action":"pass","Package":"p","Test":"TestA"}{"Act`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := list(strings.NewReader(tt.events), &out); err == nil || !strings.Contains(out.String(), tt.want) {
				t.Errorf("error %v, output\n%s", err, &out)
			}
		})
	}
}
