package egress

import (
	"net/netip"
	"strings"
)

// nameClass says what kind of network a host name speaks of.
type nameClass int

const (
	namePublic nameClass = iota
	nameLocalhost
	nameInternal    // a suffix that only inner networks answer for
	nameSingleLabel // found through a search domain, or not at all
)

// reason returns the word of a refusal for names of class c.
func (c nameClass) reason() string {
	if c == nameSingleLabel {
		return "single_label"
	}
	return "internal_name"
}

// internalSuffixes returns the endings of names that public DNS never answers
// for. A name is internal when it is one of them or ends in a dot and one.
func internalSuffixes() []string {
	return []string{
		"local", "localdomain", "internal", "intranet", "lan", "home", "corp", "private",
		"svc", "consul", "arpa",
	}
}

// readHost reads the host of a URL, brackets included: an address, or a name in
// lower case without its final dot. reason is the refusal of a host that parsers
// might read in two ways, such as 0177.0.0.1 or a.%62.example.
func readHost(host string) (name string, addr netip.Addr, reason string) {
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
	addr, err := netip.ParseAddr(name) // refuses leading zeros, hex and short forms
	if err != nil {
		return name, netip.Addr{}, "ip_literal"
	}
	return name, addr, ""
}

// checkName returns what is wrong with the spelling of a host name.
func checkName(name string) string {
	for i := range len(name) {
		if !nameByte(name[i]) {
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

func nameByte(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '-' || b == '_' || b == '.'
}

// endsInNumber is the rule of the WHATWG URL standard: a host whose last label
// is a number is an IPv4 address to browsers and C libraries, or an error.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if strings.HasPrefix(last, "0x") {
		return strings.Trim(last[2:], "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// classifyName returns the class of a host name as readHost returns it.
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
