package egress

import (
	"net/netip"
	"strings"
)

// nameClass is the kind of network that a host name belongs to.
type nameClass int

const (
	namePublic nameClass = iota
	nameLocalhost
	nameInternal    // has a suffix that only internal networks resolve
	nameSingleLabel // resolves only through a search domain
)

// reason returns the reason of a [BlockedError] for names of class c.
func (c nameClass) reason() string {
	if c == nameSingleLabel {
		return "single_label"
	}
	return "internal_name"
}

// internalSuffixes returns the suffixes that public DNS does not resolve. A name
// is internal if it equals one or ends in a dot and one.
func internalSuffixes() []string {
	return []string{
		"local", "localdomain", "internal", "intranet", "lan", "home", "corp", "private",
		"svc", "consul", "arpa",
	}
}

// parseHost parses the host of a URL, with brackets, into an address or a name in
// lower case without its final dot. A host that parsers may read in two ways,
// such as 0177.0.0.1 or a.%62.example, yields the reason of its refusal.
func parseHost(host string) (name string, addr netip.Addr, reason string) {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if !ok || strings.Contains(inner, "%") {
			return "", netip.Addr{}, "host_char"
		}
		addr, err := netip.ParseAddr(inner)
		if err != nil || !addr.Is6() {
			return "", netip.Addr{}, "ip_literal"
		}
		return strings.ToLower(inner), addr, ""
	}
	name = strings.ToLower(strings.TrimSuffix(host, "."))
	if reason := checkName(name); reason != "" {
		return name, netip.Addr{}, reason
	}
	if !endsInNumber(name) {
		return name, netip.Addr{}, ""
	}
	addr, err := netip.ParseAddr(name) // rejects leading zeros, hex and short forms
	if err != nil {
		return name, netip.Addr{}, "ip_literal"
	}
	return name, addr, ""
}

// checkName returns the reason to refuse a malformed host name, or "".
func checkName(name string) string {
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return "host_char"
		}
	}
	if len(name) > 253 {
		return "host_name"
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "host_name"
		}
	}
	return ""
}

func isNameByte(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '-' || b == '_' || b == '.'
}

// endsInNumber implements the rule of the WHATWG URL standard: if the last label
// is a number, browsers and C libraries read the host as an IPv4 address.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if strings.HasPrefix(last, "0x") {
		return strings.Trim(last[2:], "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// classifyName returns the class of a host name that parseHost returned.
func classifyName(name string) nameClass {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return nameLocalhost
	}
	for _, suffix := range internalSuffixes() {
		if name == suffix || strings.HasSuffix(name, "."+suffix) {
			return nameInternal
		}
	}
	if !strings.Contains(name, ".") {
		return nameSingleLabel
	}
	return namePublic
}
