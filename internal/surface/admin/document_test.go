package admin

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// openAPI is what the tests read of the document. That answers conform to it is
// tested in package app.
type openAPI struct {
	Paths      map[string]map[string]operation
	Components struct {
		Schemas map[string]struct{ Enum []string }
	}
}

type operation struct {
	OperationID string
	Summary     string
	Parameters  []struct{ Name, In, Description string }
	Responses   map[string]struct{ Description string }
}

func parsedDocument(t *testing.T) openAPI {
	t.Helper()
	var d openAPI
	if err := json.Unmarshal(document, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Paths) == 0 {
		t.Fatal("the document has no paths")
	}
	return d
}

// A program that reads the document finds each parameter of a path, and learns
// of every error, also of those that any request can get.
func TestEveryOperationIsDescribed(t *testing.T) {
	ids := map[string]string{}
	for path, operations := range parsedDocument(t).Paths {
		for method, o := range operations {
			at := strings.ToUpper(method) + " " + path
			if other, used := ids[o.OperationID]; used || o.OperationID == "" {
				t.Errorf("%s has the operationId %q, as has %q", at, o.OperationID, other)
			}
			ids[o.OperationID] = at
			if o.Summary == "" {
				t.Errorf("%s has no summary", at)
			}
			var inPath, declared []string
			for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				inPath = append(inPath, m[1])
			}
			for _, p := range o.Parameters {
				if p.In == "path" {
					declared = append(declared, p.Name)
				}
				if p.Description == "" {
					t.Errorf("%s: the parameter %s has no description", at, p.Name)
				}
			}
			if !slices.Equal(inPath, declared) {
				t.Errorf("%s declares the path parameters %q", at, declared)
			}
			if o.Responses["default"].Description == "" || o.Responses["429"].Description == "" {
				t.Errorf("%s does not describe 429, or other errors as default", at)
			}
		}
	}
}

func TestTheDocumentHasAllKindsOfAuditRows(t *testing.T) {
	want := []string{}
	for _, k := range audit.Kinds() {
		want = append(want, string(k))
	}
	if got := parsedDocument(t).Components.Schemas["AuditKind"].Enum; !slices.Equal(got, want) {
		t.Errorf("AuditKind is %q, want %q", got, want)
	}
}
