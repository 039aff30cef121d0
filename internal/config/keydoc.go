package config

// KeyDoc documents one key of the file.
type KeyDoc struct {
	Path     string // such as orgs[].runtime.max_rounds
	Type     string // in words, with the limits
	Default  string // as it would be written; "required" where there is none
	Env      string // the variable that overrides it; empty for none
	Doc      string // what it does, and which of its values are not built yet
	Required bool
}

// Keys documents every key, in the order of the table that the parser reads;
// a key stands before those inside it.
func Keys() []KeyDoc {
	return document(nil, "", new(Config).keys())
}

func document(docs []KeyDoc, path string, keys []key) []KeyDoc {
	for _, k := range keys {
		doc := KeyDoc{
			Path: join(path, k.name), Type: k.value.typeName(), Default: k.value.defaultText(),
			Env: k.env, Required: k.required,
		}
		if k.required {
			doc.Default = "required"
		}
		if path != "" {
			doc.Path = path + "." + k.name
		}
		doc.Doc = k.doc + unbuiltText(doc.Path)
		docs = append(docs, doc)
		if p, ok := k.value.(interface{ children() (string, []key) }); ok {
			suffix, inside := p.children()
			docs = document(docs, doc.Path+suffix, inside)
		}
	}
	return docs
}
