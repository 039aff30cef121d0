// Command child is a child process for tests: one that runs code, or one that reads a PDF.
package main

import (
	"os"

	"github.com/turnpike-gateway/turnpike/internal/pdf"
	pdfchild "github.com/turnpike-gateway/turnpike/internal/pdf/child"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/child"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == pdf.Command {
		os.Exit(pdfchild.Main(os.Args[2:]))
	}
	os.Exit(child.Main(os.Args[1:]))
}
