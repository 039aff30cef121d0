package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Limits of the file, far above any real one: its bytes, and how deep it may
// nest before the YAML parser is asked.
const (
	MaxSize  = 1 << 20
	maxDepth = 1000
)

// Load reads the file at path and puts the environment's TURNPIKE_… variables
// over it, and reads the file with prices that it names. What is wrong with the content
// of either is an *[Error], and so is a configuration without providers.
func Load(path string, env Environment) (*Config, error) {
	c, mistakes, err := load(path, env)
	if err == nil {
		err = newError(mistakes)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Check is Load and Resolve in one: it returns the mistakes of both at once, also with a file that has other mistakes. The
// configuration then lacks the values that cannot be used. The secrets are nil if there is a mistake. The error is for
// a file that cannot be read.
func Check(ctx context.Context, path string, env Environment, r *secret.Resolver) (*Config, *Secrets, []Mistake, error) {
	c, mistakes, err := load(path, env)
	if err != nil {
		return nil, nil, nil, err
	}
	keys, err := c.Resolve(ctx, r)
	var found *Error
	if errors.As(err, &found) {
		for _, m := range found.Mistakes {
			if !slices.ContainsFunc(mistakes, func(other Mistake) bool { return other.Path == m.Path }) {
				mistakes = append(mistakes, m)
			}
		}
	}
	if len(mistakes) == 0 {
		return c, keys, nil, err
	}
	return c, nil, sorted(mistakes), nil
}

// load returns what is wrong as mistakes, with what is right.
func load(path string, env Environment) (*Config, []Mistake, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("configuration: %w; correct the path, or write a first file with \"turnpike config init\"", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, fmt.Errorf("configuration: %w; the user that runs turnpike must be able to read the file", err)
	case err != nil:
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	c, d := parse(path, data, env)
	mistakes := d.mistakes
	unread := func(path string) bool {
		return slices.ContainsFunc(mistakes, func(m Mistake) bool { return m.Path == "" || strings.HasPrefix(m.Path, path) })
	}
	if len(c.Providers) == 0 && !unread("providers") {
		mistakes = append(mistakes, c.Mistake("providers", "is missing; want at least one provider, such as {name: openai, api_key: env:OPENAI_API_KEY}"))
	}
	var found *Error
	if err := c.LoadRates(); errors.As(err, &found) {
		mistakes = append(mistakes, found.Mistakes...)
	} else if err != nil {
		return nil, nil, err
	}
	return c, mistakes, nil
}

// LoadRates reads the file with the operator's prices, if there is one, as Load does.
func (c *Config) LoadRates() error {
	if c.Rates == "" {
		return nil
	}
	data, err := os.ReadFile(c.Rates)
	if err != nil {
		at := nearestOrigin(c.where, "rates")
		return newError([]Mistake{at.mistake(c.file, "rates", fmt.Sprintf("%v; create the file (an empty one has no prices) or leave the key out", err))})
	}
	c.RateRows, err = ReadRates(c.Rates, data)
	return err
}

// Parse reads a configuration; name stands for its file in messages. The
// *[Error] holds every mistake, not only the first. An empty file is valid:
// every key has its default. The file with prices is not read. Relative paths in it are relative to the directory of
// name.
func Parse(name string, data []byte, env Environment) (*Config, error) {
	c, d := parse(name, data, env)
	if err := newError(d.mistakes); err != nil {
		return nil, err
	}
	return c, nil
}

// parse returns what is right, and the decoder with what is wrong.
func parse(name string, data []byte, env Environment) (*Config, *decoder) {
	d := &decoder{file: name, where: map[string]origin{}}
	if dir := filepath.Dir(name); dir != "." {
		d.dir = dir
	}
	c := &Config{file: name, where: d.where}
	keys := c.keys()
	reset(keys)
	d.locateDefaults(keys)
	if root := d.tree(data); root != nil {
		d.mapping("", root, keys)
	}
	d.overlay("", keys, env)
	d.check(c)
	c.settle()
	for _, w := range d.warnings {
		c.Warnings = append(c.Warnings, w.String())
	}
	return c, d
}

// tree parses the YAML; nil for an empty file and for one that is no YAML,
// which it reports.
func (d *decoder) tree(data []byte) ast.Node {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // a byte order mark, which some editors write
	if len(data) > MaxSize {
		d.fail(origin{}, "", "is larger than %d bytes", MaxSize)
		return nil
	}
	if line := tooDeep(data); line > 0 {
		d.fail(origin{line: line, column: 1}, "", "nests deeper than %d levels", maxDepth)
		return nil
	}
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return nil
	}
	var root ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case root != nil:
			d.failNode(doc.Body, "", "starts a second document; want one")
		default:
			root = doc.Body
		}
	}
	return root
}

func (d *decoder) syntax(err error) {
	var e yaml.Error
	if errors.As(err, &e) {
		at := origin{}
		if t := e.GetToken(); t != nil && t.Position != nil {
			at = origin{line: t.Position.Line, column: t.Position.Column}
		}
		d.fail(at, "", "is not YAML: %s", explained(e.GetMessage()))
		return
	}
	d.fail(origin{}, "", "is not YAML: %v", err)
}

// explained adds the usual cause to a message of the YAML parser that names none.
func explained(message string) string {
	switch message {
	case "found character '\t' that cannot start any token":
		return "a tab cannot indent a line; use spaces"
	case "value is not allowed in this context":
		return message + "; is the line indented like the lines around it?"
	case "non-map value is specified":
		return message + "; want a space after the colon of each key"
	}
	return message
}

// tooDeep returns the line at which the text may nest deeper than maxDepth, 0
// if nowhere: the parser that follows recurses for each level. It errs on the
// careful side and also counts brackets in strings and comments.
func tooDeep(data []byte) int {
	brackets, number := 0, 0
	for line := range bytes.Lines(data) {
		number++
		rest := bytes.TrimLeft(line, " \t-?") // lists in lists: - - - x
		if len(line)-len(rest) > 2*maxDepth {
			return number
		}
		for _, b := range rest {
			switch b {
			case '[', '{':
				brackets++
			case ']', '}':
				brackets = max(brackets-1, 0)
			}
			if brackets > maxDepth {
				return number
			}
		}
	}
	return 0
}
