// Command child is a child process for tests: one that runs code, reads a PDF or queries a file of SQLite.
package main

import (
	"os"

	"github.com/turnpike-gateway/turnpike/internal/pdf"
	pdfchild "github.com/turnpike-gateway/turnpike/internal/pdf/child"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/child"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == pdf.Command {
		os.Exit(pdfchild.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == sqltool.Command {
		os.Exit(sqltool.ChildMain())
	}
	os.Exit(child.Main(os.Args[2:]))
}
