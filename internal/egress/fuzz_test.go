package egress

import (
	"net/netip"
	"slices"
	"testing"
)

// FuzzAddress: an address that the default policy allows is an ordinary public
// address in every notation and embeds no blocked address. An additional blocked
// range never allows more.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{
		"8.8.8.8", "127.0.0.1", "169.254.169.254", "168.63.129.16", "100.100.100.200", "0.1.2.3", "::1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:4860::5efe:7f00:1", "fec0::1", "2606:4700::1111",
	} {
		addr := netip.MustParseAddr(seed)
		f.Add(addr.AsSlice(), uint8(0), false)
		f.Add(addr.AsSlice(), uint8(24), true)
	}
	table := specialRanges()
	f.Fuzz(func(t *testing.T, raw []byte, bits uint8, allow bool) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		p := DefaultPolicy()
		reason := p.verdict(table, addr)
		if again := p.verdict(table, addr.Unmap()); again != reason {
			t.Fatalf("%s: %q, unmapped %q", addr, reason, again)
		}
		if reason == "" {
			checkPublic(t, p, table, addr.Unmap())
		}
		prefix := netip.PrefixFrom(addr, int(bits)%(addr.BitLen()+1)).Masked()
		if addr.Is4In6() && prefix.Bits() < 96 { // an IPv6 range does not cover IPv4
			return
		}
		more := p
		if allow {
			more.Allowlist = []netip.Prefix{prefix}
			carries := slices.Contains(embedded(addr.Unmap()), metadataV4())
			if got := more.verdict(table, addr); got == "" && carries && unmap(prefix) != netip.PrefixFrom(metadataV4(), 32) {
				t.Fatalf("%s is allowed through %s", addr, prefix)
			}
			return
		}
		more.ExtraBlocked = []netip.Prefix{prefix}
		if got := more.verdict(table, addr); got == "" {
			t.Fatalf("%s is in the blocked range %s and is allowed", addr, prefix)
		}
	})
}

// checkPublic checks that net/netip calls addr a public address, and that every
// IPv4 address that it embeds is allowed too.
func checkPublic(t *testing.T, p Policy, table []blockedRange, addr netip.Addr) {
	t.Helper()
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() {
		t.Fatalf("%s passes", addr)
	}
	if addr.Is4() {
		return
	}
	for _, inner := range embedded(addr) {
		if reason := p.verdict(table, inner); reason != "" {
			t.Fatalf("%s passes and carries %s: %s", addr, inner, reason)
		}
	}
}

// FuzzCheckURL: a URL that is accepted has exactly one destination, and the policy
// does not block it.
func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{
		"https://example.com/mcp", "http://2130706433/", "http://0x7f.1/", "http://[::ffff:127.0.0.1]/", "http://127.0.0.1./", "http://a@b/",
		"http://metadata.google.internal/", "http://example.com:22/", "https://8.8.8.8:443", "http://1.1.1.1.nip.io/", "HTTPS://[64:ff9b::a9fe:a9fe]/",
	} {
		f.Add(seed)
	}
	e := New(DefaultPolicy(), Options{})
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := e.CheckURL(raw)
		if err != nil {
			if reasonOf(err) == "" {
				t.Fatalf("%q: %v is not a BlockedError", raw, err)
			}
			return
		}
		again, err := ParseTarget(raw)
		if err != nil || again != target {
			t.Fatalf("%q: judged as %+v, read as %+v, %v", raw, target, again, err)
		}
		if target.Addr.IsValid() {
			checkPublic(t, DefaultPolicy(), specialRanges(), target.Addr.Unmap())
		} else if classifyName(target.Host) != namePublic {
			t.Fatalf("%q names %s, which is not public", raw, target.Host)
		}
	})
}
