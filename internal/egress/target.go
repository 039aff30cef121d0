package egress

import (
	"net/netip"
	"strconv"
	"strings"
)

// maxURL is the length, in bytes, at which a URL is refused.
const maxURL = 4096

// Target is the parsed destination of a URL.
type Target struct {
	Scheme string     // http or https
	Host   string     // lower case, without brackets and final dot
	Addr   netip.Addr // set when the host is an IP literal
	Port   uint16     // the scheme's default if the URL has none
}

// ParseTarget parses the destination of rawURL. It accepts only URLs that every
// parser reads alike: printable ASCII, http or https, no user information, no
// fragment, canonical IP literals, no port of another protocol. For any other
// URL it returns a [*BlockedError]. It does not check whether the policy allows
// the address.
func ParseTarget(rawURL string) (Target, error) {
	if reason := checkCharacters(rawURL); reason != "" {
		return Target{}, &BlockedError{Reason: reason}
	}
	scheme, rest, found := strings.Cut(rawURL, ":")
	scheme = strings.ToLower(scheme)
	if !found || scheme != "http" && scheme != "https" {
		return Target{}, &BlockedError{Reason: "scheme"}
	}
	authority, ok := strings.CutPrefix(rest, "//")
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	switch {
	case !ok || authority == "":
		return Target{}, &BlockedError{Reason: "no_host"}
	case strings.Contains(authority, "@"):
		return Target{}, &BlockedError{Reason: "userinfo"}
	case strings.Contains(rest, "#"):
		return Target{}, &BlockedError{Reason: "fragment"}
	}
	return parseAuthority(scheme, authority)
}

// checkCharacters refuses what different parsers are known to clean up differently.
func checkCharacters(rawURL string) string {
	if len(rawURL) >= maxURL {
		return "url_too_long"
	}
	for i := range len(rawURL) {
		if c := rawURL[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return "url_char"
		}
	}
	return ""
}

func parseAuthority(scheme, authority string) (Target, error) {
	host, port := authority, ""
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		host, port = authority[:i], authority[i:]
	}
	name, addr, reason := parseHost(host)
	if reason != "" {
		return Target{}, &BlockedError{Reason: reason, Host: host}
	}
	number, ok := parsePort(scheme, port)
	if !ok {
		return Target{}, &BlockedError{Reason: "port", Host: host}
	}
	return Target{Scheme: scheme, Host: name, Addr: addr, Port: number}, nil
}

// parsePort parses a port with its leading colon, or returns the scheme's default
// for "".
func parsePort(scheme, port string) (uint16, bool) {
	if port == "" {
		if scheme == "http" {
			return 80, true
		}
		return 443, true
	}
	digits := port[1:]
	if digits == "" || digits[0] == '0' || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || isForbiddenPort(uint16(n)) {
		return 0, false
	}
	return uint16(n), true
}

// isForbiddenPort reports whether a port belongs to another protocol, whose server an
// HTTP request could attack: the bad ports of the WHATWG Fetch standard, and
// common databases, caches and control planes.
func isForbiddenPort(port uint16) bool {
	switch port {
	case 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95,
		101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179,
		389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587,
		601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061,
		6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080:
		return true
	case 445, 1433, 1521, 2375, 2376, 2379, 2380, 3306, 3389, 5432, 5672, 6379, 10250, 11211, 27017:
		return true
	}
	return false
}
