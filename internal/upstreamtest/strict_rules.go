package upstreamtest

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// The schemas of requests, one a dialect, and styles.json. Beside JSON Schema they have two
// keywords. tag names the member whose const tells the branches of an anyOf apart. refusals
// are messages by the keyword that fails; those of the style are for all others. A message may
// begin with a code and " | ".
//
//go:embed testdata/strict/*.json
var strictFiles embed.FS // read-only

// rules are what a dialect refuses about the values of a request.
type rules struct {
	schema *jsonschema.Schema
	docs   map[string]any // the schemas as JSON, by URL
	style  style
}

// style is how a dialect words what is wrong. Its messages are by keyword, or by keyword and
// type: "minimum integer".
type style struct {
	Dots     bool
	Refusals map[string]string
}

func rulesOf(name string) rules { return compiled()[name] }

var compiled = sync.OnceValue(func() map[string]rules {
	files, err := strictFiles.ReadDir("testdata/strict")
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.AssertContent()
	c.RegisterFormat(&jsonschema.Format{Name: "int64", Validate: isInt64})
	for name, is := range map[string]func(string) bool{"base64": isBase64, "data-url": isDataURL, "words": isWords} {
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(v any) error {
			if s, ok := v.(string); ok && !is(s) {
				return errors.New("is not " + name)
			}
			return nil
		}})
	}
	docs := map[string]any{}
	var styles map[string]style
	for _, f := range files {
		data, err := strictFiles.ReadFile("testdata/strict/" + f.Name())
		doc, invalid := decode(data)
		if f.Name() == "styles.json" {
			invalid = json.Unmarshal(data, &styles)
		}
		docs["mem:///"+f.Name()] = doc
		if err := errors.Join(err, invalid, c.AddResource("mem:///"+f.Name(), doc)); err != nil {
			panic(fmt.Errorf("%s: %w", f.Name(), err))
		}
	}
	all := map[string]rules{}
	for _, at := range []struct{ name, at, style string }{
		{"chat", "chat.json", "openai"}, {"responses", "responses.json", "openai"}, {"gemini", "gemini.json", "gemini"},
		{"anthropic", "anthropic.json", "anthropic"}, {"bedrock", "bedrock.json", "anthropic"},
		{"messages", "anthropic.json#/properties/messages", "anthropic"},
	} {
		all[at.name] = rules{c.MustCompile("mem:///" + at.at), docs, styles[at.style]}
	}
	return all
})

// isInt64 refuses a number that is not written as an integer, or too large: see plain.
func isInt64(v any) error {
	if _, ok := v.(float64); ok {
		return errors.New("is not an integer")
	}
	return nil
}

func isDataURL(s string) bool {
	media, data, comma := strings.Cut(s, ",")
	return comma && strings.HasPrefix(media, "data:") && strings.HasSuffix(media, ";base64") && isBase64(data)
}

func isWords(s string) bool { return strings.TrimSpace(s) != "" }

// plain returns a value as it is validated: without members that are null, which count as
// absent, and with numbers whose exact value is cheap.
func plain(v any, nulls bool) any {
	switch v := v.(type) {
	case object:
		o := object{}
		for name, e := range v {
			if e != nil || nulls {
				o[name] = plain(e, nulls)
			}
		}
		return o
	case []any:
		all := make([]any, len(v))
		for i, e := range v {
			all[i] = plain(e, nulls)
		}
		return all
	case json.Number:
		if _, err := v.Int64(); err != nil {
			f, _ := v.Float64()
			return max(-math.MaxFloat64, min(f, math.MaxFloat64))
		}
	}
	return v
}

// fault returns why a value at a path is refused; nil = it is not. The refusal that is the
// least deep counts, and of one value's that of an unknown member.
func (r rules) fault(path string, v any) *refusal {
	for _, nulls := range []bool{false, true} {
		value := plain(v, nulls)
		var failed *jsonschema.ValidationError
		if !errors.As(r.schema.Validate(value), &failed) {
			continue
		}
		var faults []fault
		for _, e := range r.leaves(failed, value) {
			// A member that is null may still be unknown, or one too many.
			f := r.describe(e, path, value)
			if !nulls || f.rank() < 0 {
				faults = append(faults, f)
			}
		}
		if len(faults) > 0 {
			first := slices.MinFunc(faults, func(a, b fault) int {
				return cmp.Or(cmp.Compare(a.depth, b.depth), strings.Compare(a.at, b.at), cmp.Compare(a.rank(), b.rank()))
			})
			return &first.refusal
		}
	}
	return nil
}

// fault is a refusal, and what makes it the first one.
type fault struct {
	refusal
	depth       int
	at, keyword string
}

func (f fault) rank() int {
	switch f.keyword {
	case "dependentRequired":
		return -2
	case "additionalProperties", "maxProperties":
		return -1
	}
	return 0
}

// leaves returns the errors without causes, of an anyOf with a tag only those of the branch
// that the tag names.
func (r rules) leaves(e *jsonschema.ValidationError, root any) []*jsonschema.ValidationError {
	causes := e.Causes
	switch e.ErrorKind.(type) {
	case *kind.AnyOf:
		i := slices.IndexFunc(causes, func(c *jsonschema.ValidationError) bool { return len(errorsAt(c, r.tag(e))) == 0 })
		if i < 0 || slices.Equal(r.tag(e), e.InstanceLocation) {
			causes = nil
		} else {
			causes = causes[i : i+1]
		}
	case *kind.OneOf, *kind.Contains:
		causes = nil
	}
	if len(causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	var all []*jsonschema.ValidationError
	for _, c := range causes {
		all = append(all, r.leaves(c, root)...)
	}
	return all
}

// tag returns the place of the member that tells the branches of an anyOf apart, or that of
// the value itself if there is none.
func (r rules) tag(e *jsonschema.ValidationError) []string {
	if tag, ok := r.keyword(e, "tag").(string); ok {
		return append(slices.Clone(e.InstanceLocation), tag)
	}
	return e.InstanceLocation
}

// errorsAt returns the errors without causes at a place.
func errorsAt(e *jsonschema.ValidationError, place []string) []*jsonschema.ValidationError {
	if len(e.Causes) == 0 && slices.Equal(e.InstanceLocation, place) {
		return []*jsonschema.ValidationError{e}
	}
	var all []*jsonschema.ValidationError
	for _, c := range e.Causes {
		all = append(all, errorsAt(c, place)...)
	}
	return all
}

// at returns a value in another one; nil = it is not there.
func at(v any, place []string) any {
	for _, token := range place {
		switch of := v.(type) {
		case object:
			v = of[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(of) {
				return nil
			}
			v = of[i]
		}
	}
	return v
}

// keyword returns a keyword of the schema that failed.
func (r rules) keyword(e *jsonschema.ValidationError, name string) any {
	file, pointer, _ := strings.Cut(e.SchemaURL, "#")
	pointer, _ = url.PathUnescape(strings.TrimPrefix(pointer, "/"))
	place := strings.Split(pointer, "/")
	if pointer == "" {
		place = nil
	}
	for i := range place {
		place[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(place[i])
	}
	s, _ := at(r.docs[file], place).(object)
	return s[name]
}

// describe words an error.
func (r rules) describe(e *jsonschema.ValidationError, path string, root any) fault {
	for i, token := range e.InstanceLocation {
		if _, in := at(root, e.InstanceLocation[:i]).([]any); in {
			path = element(r.style.Dots, path, token)
		} else {
			path = child(path, token)
		}
	}
	f := fault{keyword: append(e.ErrorKind.KeywordPath(), "not")[0], depth: len(e.InstanceLocation), at: path}
	v := at(root, e.InstanceLocation)
	want, size, name := r.keyword(e, f.keyword), 0, ""
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		name = k.Missing[0]
	case *kind.DependentRequired:
		name = k.Missing[0]
	case *kind.AdditionalProperties:
		name = slices.Min(k.Properties)
	case *kind.Type:
		want = k.Want[len(k.Want)-1]
	case *kind.Format:
		if want == "int64" {
			f.keyword, want = "type", "integer"
		}
	case *kind.Const:
		want = []any{want}
	case *kind.AnyOf:
		want = r.tags(e)
		v = at(root, r.tag(e))
		path = child(path, strings.Join(r.tag(e)[f.depth:], ""))
	case *kind.MaxLength:
		size = k.Got
	case *kind.MaxItems:
		size = k.Got
	}
	f.param = path
	if name != "" {
		f.param = child(path, name)
	}
	values, _ := want.([]any)
	var words []string
	for _, v := range values {
		words = append(words, fmt.Sprint(v))
	}
	list := "'" + strings.Join(words, "', '") + "'"
	choice := list
	if i := strings.LastIndex(list, ", "); i >= 0 {
		choice = list[:i] + " or" + list[i+1:]
	}
	f.message = strings.NewReplacer("{path}", f.param, "{parent}", path, "{name}", name, "{size}", fmt.Sprint(size),
		"{want}", fmt.Sprint(want), "{a want}", article(fmt.Sprint(want)), "{values}", list, "{choice}", choice,
		"{min}", fmt.Sprint(r.keyword(e, "minimum")), "{max}", fmt.Sprint(r.keyword(e, "maximum")),
		"{json}", string(encode(v)), "{type}", string(encode(at(v, []string{"type"}))),
		"{got}", strings.Trim(string(encode(v)), `"`), "{a got}", article(typeName(v)),
	).Replace(r.message(e, f.keyword, want))
	if code, message, ok := strings.Cut(f.message, " | "); ok {
		f.code, f.message = code, message
	}
	return f
}

// tags returns the values that the tag of an anyOf may have.
func (r rules) tags(e *jsonschema.ValidationError) []any {
	var all []any
	for _, c := range errorsAt(e, r.tag(e)) {
		if one := r.keyword(c, "const"); one != nil {
			all = append(all, one)
		}
		several, _ := r.keyword(c, "enum").([]any)
		all = append(all, several...)
	}
	return all
}

// message returns the words of the schema that failed, or those of the style.
func (r rules) message(e *jsonschema.ValidationError, keyword string, want any) string {
	own, _ := r.keyword(e, "refusals").(object)
	if text, ok := own[keyword].(string); ok {
		return text
	}
	kind := r.keyword(e, "type")
	switch keyword {
	case "type":
		kind = want
	case "const", "anyOf":
		keyword = "enum"
	case "dependentRequired":
		keyword = "required"
	}
	return cmp.Or(r.style.Refusals[fmt.Sprint(keyword, " ", kind)], r.style.Refusals[keyword], "{path}: "+keyword)
}

func article(noun string) string {
	if noun != "" && strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}

func typeName(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case json.Number:
		return "integer"
	case float64:
		return "decimal"
	case []any:
		return "array"
	}
	return "object"
}
