package httptool

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// maxURL is the longest URL that is requested, in bytes. The outbound policy refuses longer ones
// than 4,096, which would end the run.
const maxURL = 4000

// URL is the URL of a tool with the names of arguments in it.
type URL struct{ parts []part }

// part is a literal text, or an argument.
type part struct {
	text     string
	argument bool
	query    bool // it is in the query
}

// ParseURL parses a URL such as https://api.example.com/orders/{order_id}?lang={lang}. Arguments can be
// in the path and in the query, not in the scheme and the host, so that no argument chooses
// where a request goes.
func ParseURL(text string) (URL, error) {
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		return URL{}, errors.New("want an absolute URL such as https://api.example.com/orders/{order_id}")
	}
	if authority := rest[:indexOrLen(rest, "/?#")]; strings.ContainsAny(authority, "{}") {
		return URL{}, errors.New("has an argument in its host; arguments can be in the path and in the query")
	}
	var u URL
	query := false
	for text != "" {
		i := indexOrLen(text, "{}")
		if i > 0 {
			u.parts = append(u.parts, part{text: text[:i], query: query})
			query = query || strings.Contains(text[:i], "?")
		}
		if text = text[i:]; text == "" {
			break
		}
		name := regexp.MustCompile(`^\{([A-Za-z_][A-Za-z0-9_-]{0,63})\}`).FindStringSubmatch(text)
		if name == nil {
			return URL{}, errors.New("has a brace that is not part of an argument such as {order_id}; write %7B and %7D")
		}
		u.parts = append(u.parts, part{text: name[1], argument: true, query: query})
		text = text[len(name[0]):]
	}
	if err := checkSegments(u.Sample()); err != nil {
		return URL{}, err
	}
	return u, nil
}

func indexOrLen(text, chars string) int {
	if i := strings.IndexAny(text, chars); i >= 0 {
		return i
	}
	return len(text)
}

// Arguments returns the names of the arguments in the URL.
func (u URL) Arguments() (names []string) {
	for _, p := range u.parts {
		if p.argument && !slices.Contains(names, p.text) {
			names = append(names, p.text)
		}
	}
	return names
}

// Sample returns the URL with x for each argument.
func (u URL) Sample() string { return u.join(func(part) string { return "x" }) }

// Fill returns the URL with arguments, which are removed from the map. An error says which argument
// cannot be used and why.
func (u URL) Fill(arguments map[string]json.RawMessage) (string, error) {
	values := map[string]string{}
	for _, p := range u.parts {
		if !p.argument {
			continue
		}
		raw, given := arguments[p.text]
		if !given {
			return "", fmt.Errorf("the argument %s is missing", p.text)
		}
		value, ok := scalar(raw)
		switch {
		case !ok:
			return "", fmt.Errorf("the argument %s must be text, a number, true or false: it is a part of the URL", p.text)
		case !p.query && value == "":
			return "", fmt.Errorf("the argument %s is empty: it is a part of the path of the URL", p.text)
		case !p.query && leads(value):
			return "", fmt.Errorf("the argument %s leads to another path of the URL", p.text)
		}
		values[p.text] = value
	}
	text := u.join(func(p part) string {
		if p.query {
			return url.QueryEscape(values[p.text])
		}
		return url.PathEscape(values[p.text])
	})
	if err := checkSegments(text); err != nil {
		return "", errors.New("the arguments lead to another path of the URL")
	}
	for name := range values {
		delete(arguments, name)
	}
	return text, nil
}

// leads reports whether a value is, or contains between slashes, a segment that means another
// directory. Some servers decode an escaped slash before they look at the path.
func leads(value string) bool {
	for _, segment := range strings.FieldsFunc(value, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// checkSegments returns an error for a URL whose path has a segment that means another directory.
func checkSegments(text string) error {
	_, rest, _ := strings.Cut(text, "://")
	path := rest[indexOrLen(rest, "/?#"):]
	for segment := range strings.SplitSeq(path[:indexOrLen(path, "?#")], "/") {
		if decoded, err := url.PathUnescape(segment); err != nil || decoded == "." || decoded == ".." {
			return errors.New("has a path with . or .. in it, or one that is not escaped")
		}
	}
	return nil
}

func (u URL) join(argument func(part) string) string {
	var b strings.Builder
	for _, p := range u.parts {
		if p.argument {
			b.WriteString(argument(p))
		} else {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// scalar returns the text of a string, a number or a boolean; false for anything else.
func scalar(raw json.RawMessage) (string, bool) {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number, bool:
		return fmt.Sprint(v), true
	}
	return "", false
}

// withQuery returns the URL with arguments in its query, ordered by name. Null is left out, a list
// becomes one parameter for each of its items, and a map becomes its JSON.
func withQuery(text string, arguments map[string]json.RawMessage) string {
	query := url.Values{}
	for name, raw := range arguments {
		items := []json.RawMessage{raw}
		if len(raw) > 0 && raw[0] == '[' {
			_ = json.Unmarshal(raw, &items) // it is valid
		}
		for _, one := range items {
			if value, ok := scalar(one); ok {
				query.Add(name, value)
			} else if string(one) != "null" {
				query.Add(name, string(one))
			}
		}
	}
	switch {
	case len(query) == 0:
		return text
	case strings.Contains(text, "?"):
		return text + "&" + query.Encode()
	}
	return text + "?" + query.Encode()
}
