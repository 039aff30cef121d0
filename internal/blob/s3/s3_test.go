package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/blob/blobtest"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// newStore returns a Store that may reach this machine.
func newStore(t *testing.T) *Store {
	policy := egress.DefaultPolicy()
	policy.Allowlist = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	out := egress.New(policy, egress.Options{})
	t.Cleanup(out.CloseIdleConnections)
	s := New(Options{Client: out.Guarded(egress.GuardedOptions{}), Log: slog.New(slog.DiscardHandler), Secret: func(_ context.Context, _, reference string) (string, error) {
		if reference == "secret:missing" {
			return "", errors.New("there is no such secret")
		}
		return "value of " + reference, nil
	}})
	s.wait = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	return s
}

// fake is a service in memory, with one bucket.
func fake(t *testing.T) (url string, objects *s3mem.Backend) {
	objects = s3mem.New()
	if err := objects.CreateBucket("shared"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(objects).Server())
	t.Cleanup(server.Close)
	return server.URL, objects
}

func at(endpoint string, b org.Bucket) org.Bucket {
	b.Kind, b.Endpoint, b.Bucket, b.AccessKey, b.SecretKey = org.BucketS3, endpoint, "shared", "secret:id", "secret:key"
	return b
}

// E20
func TestSuite(t *testing.T) {
	type service struct {
		store *Store
		url   string
	}
	services := map[*testing.T]service{}
	blobtest.Run(t, func(t *testing.T, orgID string, settings org.Bucket) blob.Bucket {
		if services[t].store == nil {
			url, _ := fake(t)
			services[t] = service{newStore(t), url}
		}
		settings.Prefix = orgID + "/" + settings.Name + "/"
		return must(services[t].store.Bucket(t.Context(), orgID, at(services[t].url, settings)))
	})
}

// What others have put into the bucket is listed and read if its key is a path. A content that is not the one that was
// written is an error.
func TestObjectsOfOthers(t *testing.T) {
	url, objects := fake(t)
	b := must(newStore(t).Bucket(t.Context(), "a", at(url, org.Bucket{Name: "files", Prefix: "mine/"})))
	put := func(key, text string, metadata map[string]string) {
		must(objects.PutObject("shared", key, metadata, strings.NewReader(text), int64(len(text)), nil))
	}
	for _, key := range []string{"mine/", "mine/dir/", "mine/a//b", "mine/../x", "yours/x", "mine/ok"} {
		put(key, "of others", nil)
	}
	if page := must(b.List(t.Context(), blob.Query{Limit: 10})); len(page.Files) != 1 || page.Files[0].Path != "ok" || page.More {
		t.Errorf("%+v", page)
	}
	content, info, err := b.Open(t.Context(), "ok")
	if err != nil || info.SHA256 != "" {
		t.Fatalf("%+v, %v", info, err)
	}
	if text := must(io.ReadAll(content)); string(text) != "of others" || content.Close() != nil {
		t.Errorf("%q", text)
	}
	written := must(b.Put(t.Context(), "x", strings.NewReader("hello")))
	put("mine/x", "hallo", map[string]string{headerDigest: written.SHA256})
	content, info, err = b.Open(t.Context(), "x")
	if err != nil || info.SHA256 != written.SHA256 {
		t.Fatalf("%+v, %v", info, err)
	}
	if _, err := io.ReadAll(content); !errors.Is(err, blob.ErrDamaged) {
		t.Error(err)
	}
	_ = content.Close()
}

// What the service refuses is told in words that name neither an address nor a credential, with the setting that can help.
func TestErrorsOfTheService(t *testing.T) {
	const malformed = `<Error><Code>AuthorizationHeaderMalformed</Code>`
	for name, c := range map[string]struct {
		status  int
		answer  string
		setting string
	}{
		"another key":    {403, `<Error><Code>InvalidAccessKeyId</Code><Message>canary</Message></Error>`, "access_key and secret_key of the bucket"},
		"another secret": {403, `<Error><Code>SignatureDoesNotMatch</Code><Message>canary</Message></Error>`, "access_key and secret_key of the bucket"},
		"another bucket": {404, `<Error><Code>NoSuchBucket</Code><Message>canary</Message></Error>`, "bucket of the bucket"},
		"not S3":         {200, `<html>canary</html>`, "endpoint of the bucket"},
		"a redirect":     {307, `<Error><Code>TemporaryRedirect</Code><Message>canary</Message></Error>`, "endpoint of the bucket"},
		"its region":     {400, malformed + `<Region>us-east-1</Region></Error>`, "access_key and secret_key of the bucket"},
		"another region": {400, malformed + `<Region>eu-west-1</Region></Error>`, "region of the bucket"},
		"a failure":      {500, `<Error><Code>InternalError</Code><Message>canary</Message></Error>`, ""},
		"endless":        {200, "<ListBucketResult><Name>shared</Name>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.Contains(r.Header.Get("Authorization"), "Credential=value of secret:id/") {
					t.Errorf("%v", r.Header)
				}
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(c.status)
				for text := c.answer; ; text = strings.Repeat("<Contents><Key>x</Key></Contents>", 1000) {
					n, err := io.WriteString(w, text)
					if sent.Add(int64(n)); err != nil || name != "endless" {
						return
					}
				}
			}))
			defer server.Close()
			b := must(newStore(t).Bucket(t.Context(), "a", at(server.URL, org.Bucket{Name: "files"})))
			_, err := b.List(t.Context(), blob.Query{Limit: 1})
			var refused *blob.RefusedError
			if !errors.As(err, &refused) || refused.Setting != c.setting && c.setting != "" || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "value of") {
				t.Errorf("%v (%+v)", err, refused)
			}
			if sent.Load() > attempts*4*maxAnswer {
				t.Errorf("%d bytes were read", sent.Load())
			}
		})
	}
}

// A redirect is not followed and not asked for again. The refusal says what to correct: the region, where the service
// names it, or the endpoint.
func TestRedirectsOfTheService(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		header  map[string]string
		setting string
	}{
		"to another endpoint":         {307, map[string]string{"Location": "/elsewhere"}, "endpoint of the bucket"},
		"without a place":             {301, nil, "endpoint of the bucket"},
		"to another region":           {307, map[string]string{"Location": "/x", "X-Amz-Bucket-Region": "eu-west-1"}, "region of the bucket"},
		"to a region, and no place":   {301, map[string]string{"X-Amz-Bucket-Region": "eu-west-1"}, "region of the bucket"},
		"to what is not a region":     {301, map[string]string{"X-Amz-Bucket-Region": "evil\u00e9 region"}, "endpoint of the bucket"},
		"to the region of the bucket": {301, map[string]string{"X-Amz-Bucket-Region": "us-east-1"}, "endpoint of the bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				for name, value := range c.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(c.status)
			}))
			defer server.Close()
			b := must(newStore(t).Bucket(t.Context(), "a", at(server.URL, org.Bucket{Name: "files"})))
			for call, send := range map[string]func() error{
				"list":  func() error { _, err := b.List(t.Context(), blob.Query{Limit: 1}); return err },
				"stat":  func() error { _, err := b.Stat(t.Context(), "a"); return err },
				"write": func() error { _, err := b.Put(t.Context(), "a", strings.NewReader("x")); return err },
			} {
				asked.Store(0)
				err := send()
				var refused *blob.RefusedError
				if !errors.As(err, &refused) || refused.Setting != c.setting || strings.Contains(err.Error(), "may have been carried out") {
					t.Errorf("%s: %v (%+v)", call, err, refused)
				}
				if asked.Load() != 1 {
					t.Errorf("%s: the service was asked %d times", call, asked.Load())
				}
			}
		})
	}
}

// The outbound policy applies to the endpoint: its refusal ends the run.
func TestTheOutboundPolicyApplies(t *testing.T) {
	out := egress.New(egress.DefaultPolicy(), egress.Options{})
	s := New(Options{Client: out.Guarded(egress.GuardedOptions{}), Secret: func(context.Context, string, string) (string, error) { return "x", nil }})
	b := must(s.Bucket(t.Context(), "a", at("http://169.254.169.254", org.Bucket{Name: "files"})))
	_, put := b.Put(t.Context(), "x", strings.NewReader("x"))
	_, list := b.List(t.Context(), blob.Query{Limit: 1})
	for _, err := range []error{put, list, b.Delete(t.Context(), "x")} {
		if fatal := (tool.Blocked)(nil); !errors.As(err, &fatal) {
			t.Error(err)
		}
	}
}

// A credential that does not exist is an error that names the setting.
func TestAMissingCredential(t *testing.T) {
	settings := at("http://127.0.0.1:1", org.Bucket{Name: "files"})
	settings.SecretKey = "secret:missing"
	var refused *blob.RefusedError
	if _, err := newStore(t).Bucket(t.Context(), "a", settings); !errors.As(err, &refused) || refused.Setting != "secret_key of the bucket" {
		t.Error(err)
	}
}

// What others write counts against the quota an hour later, or after a write that failed.
func TestTheQuotaIsCountedAnew(t *testing.T) {
	url, objects := fake(t)
	now := time.Unix(1_800_000_000, 0)
	s := newStore(t)
	s.o.Now = func() time.Time { return now }
	b := must(s.Bucket(t.Context(), "a", at(url, org.Bucket{Name: "files", Quota: 10})))
	must(b.Put(t.Context(), "x", strings.NewReader("12345")))
	must(objects.PutObject("shared", "y", nil, strings.NewReader("12345"), 5, nil))
	must(b.Put(t.Context(), "z", strings.NewReader("1234")))
	now = now.Add(countedFor)
	var limit *blob.LimitError
	if _, err := b.Put(t.Context(), "w", strings.NewReader("1")); !errors.As(err, &limit) {
		t.Error(err)
	}
}

// A list goes on over the pages of the service.
func TestManyFiles(t *testing.T) {
	url, objects := fake(t)
	b := must(newStore(t).Bucket(t.Context(), "a", at(url, org.Bucket{Name: "files"})))
	const files = 2100
	for i := range files {
		must(objects.PutObject("shared", fmt.Sprintf("f%05d", i), nil, strings.NewReader("x"), 1, nil))
	}
	page := must(b.List(t.Context(), blob.Query{Offset: 1500, Limit: 550}))
	if len(page.Files) != 550 || page.Files[0].Path != "f01500" || page.Files[549].Path != "f02049" || !page.More {
		t.Errorf("%d files, more: %v", len(page.Files), page.More)
	}
	if used := must(b.Usage(t.Context())); used != (blob.Usage{Bytes: files, Files: files}) {
		t.Errorf("%+v", used)
	}
}
