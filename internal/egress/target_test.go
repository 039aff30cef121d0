package egress

import (
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
)

// refusalReason returns the reason for which a URL is refused without a lookup, or "".
func refusalReason(p Policy, rawURL string) string {
	_, err := New(p, Options{}).CheckURL(rawURL)
	return reasonOf(err)
}

func mustParse(t *testing.T, rawURL string) *url.URL {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// anyReason matches every reason.
const anyReason = "any"

func TestForbiddenTargets(t *testing.T) { // K02, K05, P06
	groups := []struct {
		name string
		rows [][2]string
	}{
		{"A plain", [][2]string{
			{"https://example.com/mcp", ""}, {"https://example.com:8443/", ""}, {"https://EXAMPLE.com./x", ""},
			{"https://xn--bcher-kva.example.com/", ""}, {"https://8.8.8.8/", ""}, {"https://[2606:4700:4700::1111]/", ""},
			{"https://example.com/?u=http://127.0.0.1/", ""}, {"https://a_b.example.com/", ""},
		}},
		{"B scheme and shape", [][2]string{
			{"file:///etc/passwd", "scheme"}, {"gopher://127.0.0.1:6379/_INFO", "scheme"}, {"ftp://example.com/", "scheme"},
			{"unix:///var/run/docker.sock", "scheme"}, {"http+unix://%2Fvar%2Frun%2Fdocker.sock/x", anyReason},
			{"data:text/plain,x", "scheme"}, {"javascript:alert(1)", "scheme"}, {"//example.com/", "scheme"},
			{"https:example.com", "no_host"}, {"https:///example.com", "no_host"}, {"", "scheme"}, {"://example.com/", "scheme"}, {"https://", "no_host"},
			{"ftp://", "scheme"}, {"data:", "scheme"}, {"javascript:", "scheme"}, {"jar:", "scheme"}, {"netdoc:", "scheme"}, {"dict://", "scheme"}, {"ws://", "scheme"},
			{"ws://example.com/", "scheme"}, {"HTTPS://127.0.0.1/", "loopback"}, {"jar:http://example.com!/", "scheme"},
			{"netdoc:///etc/passwd", "scheme"}, {"dict://example.com/", "scheme"}, {"http", "scheme"}, {"https", "scheme"},
		}},
		{"C IPv4 spellings", [][2]string{
			{"http://127.0.0.1/", "loopback"}, {"http://127.1/", "ip_literal"}, {"http://127.0.1/", "ip_literal"},
			{"http://0177.0.0.1/", "ip_literal"}, {"http://0x7f.0.0.1/", "ip_literal"}, {"http://0x7f000001/", "ip_literal"},
			{"http://2130706433/", "ip_literal"}, {"http://017700000001/", "ip_literal"}, {"http://127.000.000.001/", "ip_literal"},
			{"http://0/", "ip_literal"}, {"http://127.0.0.1./", "loopback"}, {"http://127.255.255.254/", "loopback"},
			{"http://0.0.0.0/", "this_network"}, {"http://0.1.2.3/", "this_network"}, {"http://169.254.169.254/", "metadata"},
			{"http://2852039166/", "ip_literal"}, {"http://0xa9fea9fe/", "ip_literal"}, {"http://0251.0376.0251.0376/", "ip_literal"},
			{"http://169.254.43518/", "ip_literal"}, {"http://425.510.425.510/", "ip_literal"}, {"http://4294967297/", "ip_literal"},
			{"http://127.0.0.1.nip.io/", ""}, {"http://169.254.170.2/", "metadata"}, {"http://100.100.100.200/", "metadata"},
			{"http://192.0.0.192/", "metadata"}, {"http://168.63.129.16/", "metadata"}, {"http://0x/", "ip_literal"}, {"http://1.2.3.0X/", "ip_literal"},
		}},
		{"D IPv4 ranges", [][2]string{
			{"http://10.0.0.1/", "private"}, {"http://172.16.0.1/", "private"}, {"http://172.31.255.255/", "private"},
			{"http://192.168.1.1/", "private"}, {"http://172.32.0.1/", ""}, {"http://100.64.0.1/", "cgnat"},
			{"http://100.127.255.254/", "cgnat"}, {"http://100.128.0.1/", ""}, {"http://192.0.2.1/", "documentation"},
			{"http://198.51.100.1/", "documentation"}, {"http://203.0.113.9/", "documentation"}, {"http://198.18.0.1/", "benchmark"},
			{"http://224.0.0.1/", "multicast"}, {"http://240.0.0.1/", "reserved"}, {"http://255.255.255.255/", "reserved"},
			{"http://192.88.99.1/", "deprecated_relay"}, {"http://192.0.0.8/", "ietf_protocol"}, {"http://169.254.1.1/", "link_local"},
		}},
		{"E IPv6", [][2]string{
			{"http://[::1]/", "loopback"}, {"http://[0:0:0:0:0:0:0:1]/", "loopback"}, {"http://[::]/", "ipv4_compatible"},
			{"http://[::127.0.0.1]/", "ipv4_compatible"}, {"http://[::ffff:127.0.0.1]/", "loopback"}, {"http://[::ffff:7f00:1]/", "loopback"},
			{"http://[::ffff:169.254.169.254]/", "metadata"}, {"http://[::ffff:0:127.0.0.1]/", "ipv4_translated"},
			{"http://[64:ff9b::7f00:1]/", "nat64"}, {"http://[64:ff9b::169.254.169.254]/", "nat64"}, {"http://[64:ff9b:1::a00:1]/", "nat64_local"},
			{"http://[2002:7f00:1::]/", "sixtofour"}, {"http://[2002:a9fe:a9fe::1]/", "sixtofour"},
			{"http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/", "teredo"}, {"http://[fe80::1]/", "link_local"},
			{"http://[fe80::1%25eth0]/", "host_char"}, {"http://[fe80::1%eth0]/", anyReason}, {"http://[fc00::1]/", "ula"},
			{"http://[fd00:ec2::254]/", "metadata"}, {"http://[fd20:ce::254]/", "metadata"}, {"http://[fec0::1]/", "site_local"},
			{"http://[ff02::1]/", "multicast"}, {"http://[2001:db8::1]/", "documentation"}, {"http://[3fff::1]/", "documentation"},
			{"http://[100::1]/", "discard"}, {"http://[2001:4860::5efe:7f00:1]/", "isatap"}, {"http://[2001:4860::200:5efe:7f00:1]/", "isatap"},
			{"http://[4000::1]/", "not_global_unicast"}, {"http://[5f00::1]/", "not_global_unicast"}, {"http://[2001:2::1]/", "ietf_protocol"},
			{"http://[::ffff:8.8.8.8]/", ""}, {"http://::1/", anyReason}, {"http://[127.0.0.1]/", anyReason}, {"http://[::1].example.com/", anyReason},
			{"http://[::1/", anyReason}, {"http://[]/", anyReason},
		}},
		{"F names", [][2]string{
			{"http://localhost/", "internal_name"}, {"http://LOCALHOST./", "internal_name"}, {"http://a.localhost/", "internal_name"},
			{"http://kubernetes.default.svc/", "internal_name"}, {"http://metadata.google.internal/", "internal_name"},
			{"http://db.cluster.local/", "internal_name"}, {"http://router.lan/", "internal_name"},
			{"http://1.1.1.1.in-addr.arpa/", "internal_name"}, {"http://nas.home.arpa/", "internal_name"}, {"http://redis/", "single_label"},
			{"http://example..com/", "host_name"}, {"http://-a.example.com/", "host_name"},
			{"http://" + strings.Repeat("a", 64) + ".example.com/", "host_name"}, {"http://" + strings.Repeat("a.", 130) + "com/", "host_name"},
			{"http://example.com.:80/", ""}, {"http://./", "host_name"},
		}},
		{"G Unicode and encoding", [][2]string{
			{"http://127。0。0。1/", "url_char"}, {"http://①②⑦.⓪.⓪.①/", "url_char"}, {"http://１２７.0.0.1/", "url_char"},
			{"http://ⓛocalhost/", "url_char"}, {"http://еxample.com/", "url_char"}, {"http://exa\u00admple.com/", "url_char"},
			{"http://exa\u200bmple.com/", "url_char"}, {"http://exa%6dple.com/", anyReason}, {"http://127.0.0.1%2f@example.com/", anyReason},
			{"http://%31%32%37.0.0.1/", anyReason},
		}},
		{"H confusion", [][2]string{
			{"http://example.com@127.0.0.1/", "userinfo"}, {"http://127.0.0.1@example.com/", "userinfo"},
			{"http://127.0.0.1:80@example.com:80/", "userinfo"}, {"http://a:b@example.com/", "userinfo"}, {"http://@127.0.0.1/", "userinfo"},
			{"http://example.com#@127.0.0.1/", "fragment"}, {"http://example.com\\@127.0.0.1/", "url_char"}, {"http:\\\\127.0.0.1/", "url_char"},
			{"http://exam\tple.com/", "url_char"}, {"http://example.com/\n", "url_char"}, {"http://example.com/\r\nX: y", "url_char"},
			{" http://example.com/", "url_char"}, {"http://example.com?@127.0.0.1", ""}, {"http://example.com:80:127.0.0.1/", anyReason},
			{"http://example.com;@127.0.0.1/", anyReason}, {"http://127.0.0.1;example.com/", anyReason},
			{"http:/127.0.0.1/", "no_host"}, {"http:127.0.0.1", "no_host"}, {"http://example.com:080/", "port"},
		}},
		{"I ports", [][2]string{
			{"http://example.com:0/", "port"}, {"http://example.com:65536/", "port"}, {"http://example.com:/", "port"},
			{"http://example.com:22/", "port"}, {"http://example.com:25/", "port"}, {"http://example.com:2375/", "port"},
			{"http://example.com:6379/", "port"}, {"http://example.com:-1/", anyReason}, {"http://example.com:８０/", "url_char"},
			{"http://example.com:65535/", ""},
		}},
		{"J size", [][2]string{
			{"http://example.com/" + strings.Repeat("a", maxURL), "url_too_long"},
			{"http://example.com/" + strings.Repeat("a", maxURL-len("http://example.com/")-1), ""},
		}},
	}
	rows := 0
	for _, g := range groups {
		rows += len(g.rows)
	}
	if rows < 150 {
		t.Errorf("the table has %d rows, and had 150", rows)
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, row := range g.rows {
				got := refusalReason(DefaultPolicy(), row[0])
				if got != row[1] && (row[1] != anyReason || got == "") {
					t.Errorf("%.80q: %q, want %q", row[0], got, row[1])
				}
			}
		})
	}
}

func TestEveryReasonIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/outbound-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons := strings.Fields("isatap not_global_unicast extra_blocked no_address too_many_addresses self redirect internal_name single_label " +
		"ip_literal host_char host_name port url_too_long url_char scheme no_host userinfo fragment unresolved")
	for _, b := range specialRanges() {
		reasons = append(reasons, b.reason)
	}
	for _, reason := range reasons {
		if !strings.Contains(string(page), "`"+reason+"`") {
			t.Errorf("the page does not explain %s", reason)
		}
	}
}

func TestEachSwitchAllowsOnlyItsOwnClass(t *testing.T) { // K02
	classes := map[string]string{
		"loopback": "http://127.0.0.1/", "private": "http://10.0.0.1/", "link_local": "http://169.254.1.1/",
		"multicast": "http://224.0.0.1/", "cgnat": "http://100.64.0.1/", "ula": "http://[fd12::1]/",
	}
	off := map[string]func(*Policy){
		"loopback": func(p *Policy) { p.BlockLoopback = false }, "private": func(p *Policy) { p.BlockPrivate = false },
		"link_local": func(p *Policy) { p.BlockLinkLocal = false }, "multicast": func(p *Policy) { p.BlockMulticast = false },
		"cgnat": func(p *Policy) { p.BlockCGNAT = false }, "ula": func(p *Policy) { p.BlockULAv6 = false },
	}
	for class, open := range off {
		p := DefaultPolicy()
		open(&p)
		for other, target := range classes {
			want := other
			if other == class {
				want = ""
			}
			if got := refusalReason(p, target); got != want {
				t.Errorf("%s off, %s: %q, want %q", class, target, got, want)
			}
		}
		for _, always := range []string{"http://169.254.169.254/", "http://100.100.100.200/", "http://[fd00:ec2::254]/"} {
			if got := refusalReason(p, always); got != "metadata" {
				t.Errorf("%s off, %s: %q, want metadata", class, always, got)
			}
		}
	}
}

func TestExtraRangesAreBlockedUnlessAllowed(t *testing.T) { // K03
	p := DefaultPolicy()
	p.BlockPrivate = false
	p.ExtraBlocked = prefixes("8.8.0.0/16", "10.0.0.0/8")
	p.Allowlist = prefixes("10.9.0.0/16")
	for target, want := range map[string]string{
		"http://8.8.8.8/": "extra_blocked", "http://10.1.1.1/": "extra_blocked", "http://10.9.1.1/": "", "http://1.1.1.1/": "",
	} {
		if got := refusalReason(p, target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"https://example.com/mcp", "http://127.1/", "http://[::1]:80/", "http://a@b/", "http://x:080/", "http://0x7f.1/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := ParseTarget(raw)
		if err != nil {
			if reasonOf(err) == "" {
				t.Fatalf("%q: %v is no refusal", raw, err)
			}
			return
		}
		u, err := url.Parse(raw) // as net/http parses it
		if err != nil {
			return // net/http cannot request it
		}
		host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
		if host != target.Host {
			t.Fatalf("%q: we read host %q, net/url reads %q", raw, target.Host, host)
		}
		if addr, err := netip.ParseAddr(host); (err == nil) != target.Addr.IsValid() || err == nil && addr != target.Addr {
			t.Fatalf("%q: address %v, net/netip reads %v", raw, target.Addr, addr)
		}
		if again, err := ParseTarget(u.String()); err != nil || again != target {
			t.Fatalf("%q: not stable: %v then %v, %v", raw, target, again, err)
		}
	})
}
