package blob_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
)

// A signed URL is valid until its time, for its method, and as it was signed. // E20
func TestSignedURLs(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := blob.NewSigner([]byte("key"))
	ref := blob.Ref{Org: "acme", CreatedAt: time.UnixMilli(1234), Bucket: "docs", Path: "a/ü \"b\".png"}
	signed, err := url.Parse(s.Sign(ref, "GET", now.Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	id, query := strings.TrimPrefix(signed.Path, blob.SignedPath), signed.Query()
	exp, sig := query.Get("exp"), query.Get("sig")
	if got, err := s.Check(id, exp, sig, "GET", now.Add(time.Hour-time.Second)); err != nil || got != ref {
		t.Fatalf("%+v, %v", got, err)
	}
	other, _, _ := strings.Cut(strings.TrimPrefix(s.Sign(blob.Ref{Org: "beta", Bucket: "docs", Path: "x"}, "GET", now.Add(time.Hour)), blob.SignedPath), "?")
	for name, c := range map[string]struct {
		id, exp, sig, method string
		at                   time.Duration
		want                 error
	}{
		"expired":          {id, exp, sig, "GET", time.Hour, blob.ErrExpired},
		"another method":   {id, exp, sig, "HEAD", 0, blob.ErrSignature},
		"a later time":     {id, "1800007200", sig, "GET", 0, blob.ErrSignature},
		"another id":       {other, exp, sig, "GET", 0, blob.ErrSignature},
		"no signature":     {id, exp, "", "GET", 0, blob.ErrSignature},
		"no time":          {id, "", sig, "GET", 0, blob.ErrSignature},
		"a bit of it":      {id, exp, sig[:20], "GET", 0, blob.ErrSignature},
		"padding":          {id + "=", exp, sig, "GET", 0, blob.ErrSignature},
		"no id":            {"", exp, sig, "GET", 0, blob.ErrSignature},
		"an id that is no": {"bm8", exp, sig, "GET", 0, blob.ErrSignature},
		"too long ahead":   {id, exp, sig, "GET", -2 * time.Minute, blob.ErrSignature},
	} {
		if got, err := s.Check(c.id, c.exp, c.sig, c.method, now.Add(c.at)); !errors.Is(err, c.want) || got != (blob.Ref{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := blob.NewSigner([]byte("other")).Check(id, exp, sig, "GET", now); !errors.Is(err, blob.ErrSignature) {
		t.Error("another key:", err)
	}
}

// Whatever the path, one that is accepted has no way out of its bucket, and is a prefix of itself.
func FuzzCheckPath(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "../x", "a/..", "/a", "a//b", "a\x00", "é", "e\u0301", "a/.../b", "\u202e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if blob.CheckPath(path) != nil {
			return
		}
		for name := range strings.SplitSeq(path, "/") {
			if name == "" || name == "." || name == ".." || len(name) > blob.MaxName || strings.ContainsAny(name, "\\\x00\n\r") {
				t.Fatalf("%q", path)
			}
		}
		if blob.CheckPrefix(path) != nil || blob.CheckPrefix(path+"/") != nil && len(path) < blob.MaxPath-1 {
			t.Fatalf("%q is no prefix", path)
		}
	})
}

// What fits is counted, and nothing else.
func TestAMeter(t *testing.T) {
	var m blob.Meter
	most := blob.Limits{Bytes: 10, Files: 2}
	for _, c := range []struct {
		more blob.Usage
		want bool
	}{
		{blob.Usage{Bytes: 11, Files: 1}, false}, {blob.Usage{Bytes: 4, Files: 1}, true}, {blob.Usage{Bytes: 7, Files: 1}, false},
		{blob.Usage{Bytes: 6, Files: 1}, true}, {blob.Usage{Files: 1}, false}, {blob.Usage{Bytes: 1}, false},
	} {
		if got := m.Reserve(c.more, most); got != c.want {
			t.Errorf("%+v fits: %v", c.more, got)
		}
	}
	if m.Used() != (blob.Usage{Bytes: 10, Files: 2}) {
		t.Errorf("%+v", m.Used())
	}
	m.Release(blob.Usage{Bytes: 100, Files: 1})
	if m.Used() != (blob.Usage{Files: 1}) {
		t.Errorf("%+v", m.Used())
	}
}
