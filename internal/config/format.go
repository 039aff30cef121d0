package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
)

func anyText(s string) error {
	if strings.ContainsFunc(s, isControl) {
		return errors.New("has a control character")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func checkPath(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	return anyText(s)
}

func checkListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	switch n, bad := strconv.ParseUint(port, 10, 16); {
	case err != nil || bad != nil:
		return fmt.Errorf("%s is not host:port, such as 127.0.0.1:8080", quote(s))
	case host == "":
		return fmt.Errorf("%s has no host; want 127.0.0.1:%d, or 0.0.0.0:%d to be reached from everywhere", quote(s), n, n)
	}
	return anyText(s)
}

func checkID(s string) error {
	const pattern = `^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`
	if !regexp.MustCompile(pattern).MatchString(s) {
		return fmt.Errorf("%s is not a name; want %s", quote(s), pattern)
	}
	return nil
}

func checkPrefix(s string) error {
	const pattern = `^[a-zA-Z0-9_-]{1,32}$`
	if !regexp.MustCompile(pattern).MatchString(s) {
		return fmt.Errorf("%s is not a prefix; want %s", quote(s), pattern)
	}
	return nil
}

// checkWord takes the names that other systems give their things: any text of
// one piece.
func checkWord(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > 256:
		return errors.New("is longer than 256 bytes")
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("%s has a space or control character", quote(s))
	}
	return nil
}

// checkHosted takes the type of a hosted tool and the name of the tool that answers it.
func checkHosted(s string) error {
	kind, name, ok := strings.Cut(s, "=")
	if !ok || !slices.Contains(builtin.HostedTypes(), kind) {
		return fmt.Errorf("%s is not TYPE=TOOL, where TYPE is %s", quote(s), either(builtin.HostedTypes()))
	}
	if err := checkWord(name); err != nil {
		return fmt.Errorf("the tool of %s %w", kind, err)
	}
	return nil
}

// checkURL takes http and https, also with a query, which some compatible APIs
// want with every request. It does not quote a URL that may hold a credential.
func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err == nil && u.User != nil:
		return errors.New("has a user name or password; a credential belongs in a key or a header")
	case err != nil && strings.Contains(s, "@"):
		return errors.New("is not a URL; want http://… or https://…")
	case err != nil || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("%s is not a URL; want http://… or https://…", quote(s))
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%s is not an http:// or https:// URL", quote(s))
	case u.Hostname() == "":
		return fmt.Errorf("%s has no host", quote(s))
	case u.Fragment != "":
		return fmt.Errorf("%s has a fragment", quote(s))
	case u.Port() != "" && !validPort(u.Port()):
		return fmt.Errorf("%s has no valid port", quote(s))
	}
	return nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// checkHost takes a name as a client's Host header has it, in one spelling.
func checkHost(s string) error {
	const pattern = `^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`
	if !regexp.MustCompile(pattern).MatchString(s) {
		return fmt.Errorf("%s is not a host name in lower case, without a port; want %s", quote(s), pattern)
	}
	return nil
}

// checkOrigin takes what browsers send as Origin.
func checkOrigin(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != s {
		return fmt.Errorf("%s is not an origin such as https://app.example.com", quote(s))
	}
	return nil
}

// checkPublicURL takes a base URL, to which a path can be added.
func checkPublicURL(s string) error {
	u, err := url.Parse(s)
	if s != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || strings.ContainsAny(s, "?#")) {
		return errors.New("must be an http or https URL without a user name, a query and a fragment, such as https://gateway.example.com")
	}
	return nil
}
