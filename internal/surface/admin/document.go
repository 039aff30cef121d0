package admin

import (
	_ "embed" // the document
	"net/http"
)

// document is the OpenAPI description of this API.
//
//go:embed openapi.json
var document []byte

// ServeDocument answers GET /openapi.json.
func ServeDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document)
}
