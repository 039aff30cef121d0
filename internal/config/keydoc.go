package config

import (
	"slices"
	"strings"
)

// KeyDoc documents one key of the file.
type KeyDoc struct {
	Path     string // such as orgs[].runtime.max_rounds
	Type     string // in words, with the limits
	Default  string // as it would be written; "required" where there is none
	Env      string // the variable that overrides it; empty for none
	Doc      string // what it does, and which of its values are not built yet
	Required bool
	FileOnly bool // the management API neither shows nor accepts the key

	// Unbuilt are the values that are not built yet: the words, or "*" for any
	// value but the default. What is inside such a key is not built either.
	Unbuilt []string

	Live bool // a change can be applied while the gateway serves; otherwise it needs a restart
}

// Keys documents every key, in the order of the table that the parser reads;
// a key stands before those inside it.
func Keys() []KeyDoc {
	return document(nil, KeyDoc{}, "", new(Config).keys())
}

// document appends the documentation of the keys inside a key.
func document(docs []KeyDoc, around KeyDoc, path string, keys []key) []KeyDoc {
	for _, k := range keys {
		doc := KeyDoc{
			Path: path + k.name, Type: k.value.typeName(), Default: k.value.defaultText(), Env: k.env, Doc: k.doc, Required: k.required,
			FileOnly: around.FileOnly || k.fileOnly != "", Unbuilt: k.unbuilt.values, Live: around.Live || k.live,
		}
		if k.required {
			doc.Default = "required"
		}
		inside := slices.Contains(around.Unbuilt, "*")
		if inside || k.unbuilt.instead != "" && k.unbuilt.values == nil {
			doc.Unbuilt = []string{"*"}
		}
		switch {
		case inside:
			doc.Doc += " Not built yet."
		case slices.Contains(doc.Unbuilt, "*"):
			doc.Doc += " Not built yet: any value but the default."
		case doc.Unbuilt != nil:
			doc.Doc += " Not built yet: " + strings.Join(doc.Unbuilt, ", ") + "."
		}
		docs = append(docs, doc)
		if p, ok := k.value.(interface{ children() (string, []key) }); ok {
			suffix, keys := p.children()
			docs = document(docs, doc, doc.Path+suffix+".", keys)
		}
	}
	return docs
}
