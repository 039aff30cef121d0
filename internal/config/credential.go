package config

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/header"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

const literalCredential = "literal credential; use env:NAME or file:PATH"

// credential is a key that holds a secret: one reference, or a literal, about
// which the operator is warned. No message of it shows what was found.
type credential struct {
	scalar[secret.Text]
}

func credentialKey(into *secret.Text) credential {
	return credential{scalar[secret.Text]{
		into: into, typ: "env:NAME, file:PATH or a literal", said: `""`, parse: parseCredential,
		show: func(t secret.Text) string { return t.String() },
		hide: func(t secret.Text) string { return showText(t.String()) },
		wire: func(t secret.Text) any { return written(t) },
	}}
}

func (c credential) decode(d *decoder, path string, n ast.Node) {
	c.scalar.decode(d, path, n)
	*c.into = c.into.Under(d.dir)
	if c.into.IsLiteral() && !harmlessURL(c.into.Literal().Reveal()) {
		d.warn(originOf(n), path, literalCredential)
	}
}

// harmlessURL reports whether s is the address of a database without a
// password in it.
func harmlessURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return false
	}
	_, password := u.User.Password()
	return !password && !u.Query().Has("password")
}

func (c credential) changed() (string, bool) { return "this", !c.into.IsZero() }

func parseCredential(r raw) (secret.Text, error) {
	t, err := parseSecretText(r)
	switch {
	case err != nil:
		return secret.Text{}, err
	case t.Ref() != "" && !t.Literal().IsZero():
		return secret.Text{}, errors.New("has text before its reference; want one reference or a literal")
	case t.Ref().Kind() == secret.Vault:
		return secret.Text{}, errors.New("secret:NAME is for headers and variables of an org's servers; want env:NAME or file:PATH")
	case strings.ContainsAny(t.Literal().Reveal(), " \t"):
		return secret.Text{}, errors.New("has a space in it; want one reference or a literal")
	}
	return t, nil
}

func parseSecretText(r raw) (secret.Text, error) {
	if r.kind != isText && r.kind != isLoose {
		return secret.Text{}, fmt.Errorf("found %s, want text (put it in quotes)", r.noun())
	}
	// People write ${NAME} who expect the file to be expanded.
	if m := regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)[^}]*\}`).FindStringSubmatch(r.text); m != nil {
		return secret.Text{}, fmt.Errorf("%s is not replaced in this file; write env:%s instead, at the end of the value", m[0], m[1])
	}
	return secret.Parse(r.text)
}

// required refuses an empty credential.
func (c credential) required() credential {
	parse := c.parse
	c.parse = func(r raw) (secret.Text, error) {
		t, err := parse(r)
		if err == nil && t.IsZero() {
			err = errors.New("is empty; want env:NAME, file:PATH or a literal")
		}
		return t, err
	}
	c.said = ""
	return c
}

// secretMap is a map from the operator's own names to texts that may end in a
// reference: headers, or the environment of a command.
type secretMap struct {
	into      *map[string]string
	typ       string
	canonical func(string) string
	checkName func(string) error
}

func headers(into *map[string]string) secretMap {
	return secretMap{into, "map of header names to text, with at most one reference, at its end", textproto.CanonicalMIMEHeaderKey, checkHeader}
}

func toolHeaders(into *map[string]string) secretMap {
	m := headers(into)
	m.checkName = checkToolHeader
	return m
}

func variables(into *map[string]string) secretMap {
	return secretMap{into, "map of variable names to text, with at most one reference, at its end", strings.Clone, checkVariable}
}

func (m secretMap) reset()              { *m.into = nil }
func (m secretMap) typeName() string    { return m.typ }
func (m secretMap) defaultText() string { return "{}" }

func (m secretMap) json() any {
	out := make(map[string]string, len(*m.into))
	maps.Copy(out, *m.into)
	return out
}

func (m secretMap) shown() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(*m.into)) {
		t, err := secret.Parse((*m.into)[name])
		if err != nil {
			t = secret.Text{}
		}
		all = append(all, name+": "+showText(t.String()))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// written returns a text as it was written: a reference stays a reference.
func written(t secret.Text) string { return t.Literal().Reveal() + string(t.Ref()) }

func (m secretMap) decode(d *decoder, path string, n ast.Node) {
	found := map[string]string{}
	d.entriesAnyName(path, n, "a "+m.typ, func(at string, e entry) {
		t, err := parseSecretText(rawOf(e.value))
		name := m.canonical(e.name)
		_, twice := found[name]
		switch nameErr := m.checkName(e.name); {
		case nameErr != nil:
			d.failNode(e.key, at, "%v", nameErr)
		case twice:
			d.failNode(e.key, at, "is given twice, as %s", name)
		case err != nil:
			d.failNode(e.value, at, "%v", err)
		default:
			found[name] = written(t.Under(d.dir))
			d.where[join(path, name)] = originOf(e.value)
			d.checkSecret(at, e, t)
		}
	})
	if len(found) > 0 {
		*m.into = found
	}
}

func (d *decoder) checkSecret(at string, e entry, t secret.Text) {
	if t.IsLiteral() && regexp.MustCompile(`(?i)auth|key|token|secret|password|cookie`).MatchString(e.name) {
		d.warn(originOf(e.value), at, literalCredential)
	}
}

// checkHeader refuses names that no header can have and those that the gateway
// sets itself.
func checkHeader(name string) error {
	if !regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$").MatchString(name) {
		return errors.New("is not a header name")
	}
	own := []string{
		"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Keep-Alive",
		"Last-Event-Id", "Mcp-Protocol-Version", "Mcp-Session-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	}
	if slices.Contains(own, http.CanonicalHeaderKey(name)) {
		return errors.New("is a header that the gateway sets itself")
	}
	return nil
}

// checkToolHeader refuses what checkHeader does, and what the outbound policy does not send.
func checkToolHeader(name string) error {
	if err := checkHeader(name); err != nil {
		return err
	}
	if egress.ForbiddenHeader(name) {
		return errors.New("is a header that only the gateway may set")
	}
	return nil
}

// checkRelayed checks a name in relay_headers.
func checkRelayed(name string) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case header.Credential(canonical):
		return errors.New("is a credential; the gateway sends its own (api_key), so remove it here")
	case header.OwnHop(canonical):
		return errors.New("is for the gateway or for one connection, and is never relayed; remove it here")
	}
	return checkHeader(name)
}

func checkVariable(name string) error {
	if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`).MatchString(name) {
		return errors.New("is not a variable name")
	}
	return nil
}
