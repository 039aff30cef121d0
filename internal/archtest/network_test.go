package archtest

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// dialers are the names of the standard library that open connections or
// resolve names. Everything else that does it is reached through one of them.
func dialers() map[string][]string {
	return map[string][]string{
		"net": {
			"Dial", "DialIP", "DialTCP", "DialTimeout", "DialUDP", "DialUnix", "Dialer", "DefaultResolver", "Resolver",
			"LookupAddr", "LookupCNAME", "LookupHost", "LookupIP", "LookupMX", "LookupNS", "LookupPort", "LookupSRV", "LookupTXT",
			"ResolveIPAddr", "ResolveTCPAddr", "ResolveUDPAddr",
		},
		"net/http": {
			"Client", "DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm", "Transport",
			"NewFileTransport", "NewFileTransportFS", "ProxyFromEnvironment", "ProxyURL",
		},
		"net/http/httputil": {"ReverseProxy", "NewSingleHostReverseProxy", "NewClientConn", "NewProxyClientConn"},
		"net/rpc":           {"Dial", "DialHTTP", "DialHTTPPath"},
		"net/smtp":          {"Dial", "SendMail"},
		"crypto/tls":        {"Dial", "DialWithDialer", "Dialer"},
	}
}

// mayDial are the places that may open connections, each with the reason.
func mayDial() map[string]string {
	return map[string]string{
		"internal/egress": "it is the one dialer",
		"internal/store/postgres": "the operator names the server of the store, as a data directory; its driver dials, " +
			"and the rules for addresses that others name do not apply",
		"bench/...":    "a load generator and its servers: they measure the gateway from outside",
		"turnpiketest": "servers and clients for tests; no part of a gateway",

		"internal/upstreamtest": "servers and clients for tests; no part of a gateway",

		"internal/app/apptest": "servers and clients for tests; no part of a gateway",
	}
}

const whyOneDialer = "connections are opened in internal/egress alone, where every address is checked; " +
	"take the client or transport that you need as an argument and let internal/app pass it in"

// K04, in part: nothing gets around the outbound policy, because nothing else
// can dial. Listening is allowed everywhere: net.Listen opens no connection.
func TestConnectionsAreOpenedOnlyByEgress(t *testing.T) {
	for _, p := range listPackages(t) {
		if mayOpenConnections(p.name()) {
			continue
		}
		for _, file := range parse(t, p) {
			for _, use := range dialerUses(file) {
				if use.typeOnly {
					continue // naming the type of what one is given opens nothing
				}
				t.Errorf("%s: uses %s: %s", file.at(use.node), use.name, whyOneDialer)
			}
		}
	}
}

func mayOpenConnections(name string) bool {
	for pattern := range mayDial() {
		if matches([]string{pattern}, name) {
			return true
		}
	}
	return false
}

// use is one mention of a dialer.
type use struct {
	name     string
	node     ast.Node
	typeOnly bool // *http.Client as the type of a field or parameter
}

func dialerUses(file parsedFile) []use {
	names := importNames(file)
	var uses []use
	var pointed ast.Node // what the last * pointed to
	ast.Inspect(file.ast, func(n ast.Node) bool {
		if star, ok := n.(*ast.StarExpr); ok {
			pointed = star.X
		}
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && slices.Contains(dialers()[names[x.Name]], selector.Sel.Name) {
			isType := slices.Contains([]string{"Client", "Dialer", "Resolver", "Transport"}, selector.Sel.Name)
			uses = append(uses, use{names[x.Name] + "." + selector.Sel.Name, selector, isType && pointed == n})
		}
		return true
	})
	return uses
}

// importNames maps the names that a file knows packages by to their paths. A
// package that is imported without a name counts as used.
func importNames(file parsedFile) map[string]string {
	names := map[string]string{}
	for _, spec := range file.ast.Imports {
		path, _ := strconv.Unquote(spec.Path.Value) // the parser has seen to that
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = path
	}
	return names
}

func TestNobodyHidesADialerBehindADotImport(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, file := range parse(t, p) {
			for _, spec := range file.ast.Imports {
				if spec.Name != nil && spec.Name.Name == "." {
					t.Errorf("%s: imports %s without its name: a reader must see where a name comes from", file.at(spec), spec.Path.Value)
				}
			}
		}
	}
}
