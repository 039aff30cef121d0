package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// answers is the transport of a client under test.
type answers func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// answered returns an answer with a body.
func answered(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}
}

// clientOf returns a client for the bucket "shared", and the pauses that it makes between attempts.
func clientOf(t *testing.T, endpoint string, transport http.RoundTripper) (c *client, pauses *[]time.Duration) {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	pauses = new([]time.Duration)
	return &client{
		http: &http.Client{Transport: transport}, bucket: under(*u, "shared"), region: "eu-central-1",
		credentials: aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"},
		now:         func() time.Time { return time.Date(2026, 11, 29, 2, 58, 37, 0, time.UTC) },
		wait: func(_ context.Context, d time.Duration) error {
			*pauses = append(*pauses, d)
			return nil
		},
	}, pauses
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// The official client, service/s3 v1.114.9, sent these requests with these signatures. Headers that it adds for itself
// had been removed before it signed: accept-encoding, amz-sdk-*, user-agent and the parameter x-id.
func TestRequestsAreThoseOfTheOfficialClient(t *testing.T) {
	const (
		here = "http://storage.example.com:9000/base"
		key  = "pre/a b+c/ü~'(1)*&$=@:,;?#%41.txt"
		sent = here + "/shared/pre/a%20b%2Bc/%C3%BC~%27%281%29%2A%26%24%3D%40%3A%2C%3B%3F%23%2541.txt"
		page = "/shared?continuation-token=1%2F%2Bx%3D%3D&encoding-type=url&list-type=2&prefix=pre%2Fa%20b%2B%C3%BC&start-after=pre%2Fa%20b%2B%C3%BC%26%3D1"
		none = "host;x-amz-content-sha256;x-amz-date"
	)
	list := func(c *client) error {
		_, err := c.list(t.Context(), "pre/a b+ü", "pre/a b+ü&=1", "1/+x==")
		return err
	}
	one := func(r call) func(*client) error {
		return func(c *client) error {
			_, err := c.do(t.Context(), r)
			return err
		}
	}
	put := func(key, text string) func(*client) error {
		return one(call{method: http.MethodPut, key: key, body: strings.NewReader(text), size: int64(len(text)), digest: digestOf(text)})
	}
	for _, tt := range []struct {
		name, endpoint    string
		make              func(*client) error
		want              string // method and URL
		signed, signature string
		body              string
		written           bool // the body is that of an object
	}{
		{"a list at AWS", endpointOf(org.Bucket{}, "eu-central-1"), list, "GET https://s3.eu-central-1.amazonaws.com" + page,
			none, "b0a0931c21dec359e4ebac0adcb529feea8bf95ff373790b52b0407da8ddd1d3", "", false},
		{"a list", here, list, "GET " + here + page, none, "8a711b744c69d0ee78d274fdc77ca7192cbc274c4d34b49ca1b063512e93bb7b", "", false},
		{"a list at an endpoint with a slash", here + "/", list, "GET " + here + page, none, "8a711b744c69d0ee78d274fdc77ca7192cbc274c4d34b49ca1b063512e93bb7b", "", false},
		{"a head", here, one(call{method: http.MethodHead, key: key}), "HEAD " + sent, none, "f8e05b8e60eb16f6a6691f9ba04adcb753f3b329a1948d687614418bbd91921c", "", false},
		{"a get", here, one(call{method: http.MethodGet, key: key}), "GET " + sent, none, "b2042ede728c4f4ea5296436fa880c8e4fb946f01f1a8114bf78512c8a2f49df", "", false},
		{"a put", here, put(key, "hello"), "PUT " + sent, "content-length;content-type;host;x-amz-content-sha256;x-amz-date;x-amz-meta-turnpike-sha256",
			"9c5555ba393ef029cdebd958430cb0cbbe784b3f47a567dbf518d457587d25bc", "hello", true},
		{"a put of nothing", here, put("empty", ""), "PUT " + here + "/shared/empty", "content-type;host;x-amz-content-sha256;x-amz-date;x-amz-meta-turnpike-sha256",
			"2bfb33d996f725cbef397364871523dd19845efd7f6e5b9a6d497c5a7083f12e", "", true},
		{"a delete", here, one(call{method: http.MethodDelete, key: key}), "DELETE " + sent, none, "d37ea6f32091f267de1a8d6c074dae36c755e1fb0a1280dddce24b3f95f4ec94", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := clientOf(t, tt.endpoint, answers(func(r *http.Request) (*http.Response, error) {
				if got := r.Method + " " + r.URL.String(); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				want := http.Header{
					"Authorization":        {"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261129/eu-central-1/s3/aws4_request, SignedHeaders=" + tt.signed + ", Signature=" + tt.signature},
					"X-Amz-Content-Sha256": {digestOf(tt.body)},
					"X-Amz-Date":           {"20261129T025837Z"},
				}
				if tt.written {
					want.Set("Content-Type", "application/octet-stream")
					want.Set("X-Amz-Meta-Turnpike-Sha256", digestOf(tt.body))
				}
				if diff := cmp.Diff(want, r.Header); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if r.Body != nil {
					if body := must(io.ReadAll(r.Body)); string(body) != tt.body || r.ContentLength != int64(len(tt.body)) {
						t.Errorf("body %q, length %d", body, r.ContentLength)
					}
				}
				return answered(http.StatusOK, "<ListBucketResult/>"), nil
			}))
			if err := tt.make(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// Found with the official client, service/s3 v1.114.9.
func TestEndpointsOfAWS(t *testing.T) {
	for region, want := range map[string]string{
		"us-east-1": "https://s3.us-east-1.amazonaws.com", "us-gov-west-1": "https://s3.us-gov-west-1.amazonaws.com",
		"cn-north-1": "https://s3.cn-north-1.amazonaws.com.cn", "eusc-de-east-1": "https://s3.eusc-de-east-1.amazonaws.eu",
		"us-iso-east-1": "https://s3.us-iso-east-1.c2s.ic.gov", "us-isob-east-1": "https://s3.us-isob-east-1.sc2s.sgov.gov",
		"us-isof-south-1": "https://s3.us-isof-south-1.csp.hci.ic.gov", "eu-isoe-west-1": "https://s3.eu-isoe-west-1.cloud.adc-e.uk",
	} {
		if got := endpointOf(org.Bucket{}, region); got != want {
			t.Errorf("%s: %s, want %s", region, got, want)
		}
	}
	if got := endpointOf(org.Bucket{Endpoint: "http://minio:9000"}, "cn-north-1"); got != "http://minio:9000" {
		t.Errorf("an endpoint of its own: %s", got)
	}
}

// What may pass is tried three times, with the whole body each time.
func TestAttempts(t *testing.T) {
	fail := func(status int, code string) func() (*http.Response, error) {
		return func() (*http.Response, error) {
			return answered(status, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>"+code+"</Code><Message>m</Message></Error>"), nil
		}
	}
	success := func() (*http.Response, error) { return answered(http.StatusOK, ""), nil }
	broken := func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
	for _, tt := range []struct {
		name    string
		answers []func() (*http.Response, error)
		err     string
	}{
		{"at once", []func() (*http.Response, error){success}, ""},
		{"overloaded, then not", []func() (*http.Response, error){fail(503, "SlowDown"), success}, ""},
		{"a request that took too long", []func() (*http.Response, error){fail(400, "RequestTimeout"), success}, ""},
		{"a failure, a broken connection", []func() (*http.Response, error){fail(500, "InternalError"), broken, success}, ""},
		{"a proxy without its service", []func() (*http.Response, error){func() (*http.Response, error) { return answered(502, "<html>"), nil }, success}, ""},
		{"failures only", []func() (*http.Response, error){fail(500, "InternalError"), fail(500, "InternalError"), fail(503, "SlowDown")}, `status 503, code "SlowDown"`},
		{"broken connections only", []func() (*http.Response, error){broken, broken, broken}, "unexpected EOF"},
		{"another key", []func() (*http.Response, error){fail(403, "InvalidAccessKeyId")}, `status 403, code "InvalidAccessKeyId"`},
		{"no bucket", []func() (*http.Response, error){fail(404, "NoSuchBucket")}, `status 404, code "NoSuchBucket"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			made := 0
			c, pauses := clientOf(t, "http://service", answers(func(r *http.Request) (*http.Response, error) {
				made++
				half := make([]byte, 3) // what is left is sent by no attempt
				if made < len(tt.answers) {
					_ = must(io.ReadFull(r.Body, half))
				} else if body := must(io.ReadAll(r.Body)); string(body) != "hello" {
					t.Errorf("attempt %d sends %q", made, body)
				}
				return tt.answers[made-1]()
			}))
			_, err := c.do(t.Context(), call{method: http.MethodPut, key: "k", body: strings.NewReader("hello"), size: 5, digest: digestOf("hello")})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if made != len(tt.answers) || len(*pauses) != made-1 {
				t.Errorf("%d attempts, pauses %v; want %d", made, *pauses, len(tt.answers))
			}
			for i, least := range []time.Duration{100 * time.Millisecond, 400 * time.Millisecond}[:len(*pauses)] {
				if got := (*pauses)[i]; got < least || got >= 2*least {
					t.Errorf("pause %d is %v; want %v to %v", i, got, least, 2*least)
				}
			}
		})
	}
}

func TestACallThatIsGivenUpIsNotRepeated(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	made := 0
	c, _ := clientOf(t, "http://service", answers(func(*http.Request) (*http.Response, error) {
		made++
		cancel()
		return nil, io.ErrUnexpectedEOF
	}))
	if _, err := c.do(ctx, call{method: http.MethodGet, key: "k"}); err == nil || made != 1 {
		t.Errorf("%d attempts, %v", made, err)
	}
	if err := sleep(ctx, time.Hour); err == nil {
		t.Error("a pause does not end with the context")
	}
}

// A transport may read the body after its answer. The next attempt has the body for itself.
func TestABodyIsReadByOneAttempt(t *testing.T) {
	var late []io.Reader
	c, _ := clientOf(t, "http://service", answers(func(r *http.Request) (*http.Response, error) {
		late = append(late, r.Body)
		return answered(http.StatusServiceUnavailable, ""), nil
	}))
	body := strings.NewReader("hello")
	if _, err := c.do(t.Context(), call{method: http.MethodPut, key: "k", body: body, size: 5, digest: digestOf("hello")}); err == nil {
		t.Fatal("no error")
	}
	for i, r := range late {
		if n, err := r.Read(make([]byte, 5)); n != 0 || err == nil {
			t.Errorf("attempt %d reads %d bytes, %v", i+1, n, err)
		}
	}
	if len(late) != attempts || body.Len() != 5 {
		t.Errorf("%d attempts, %d bytes left", len(late), body.Len())
	}
}

// Keys arrive in every form that services send them in, over several pages.
func TestKeysOfLists(t *testing.T) {
	var queries []string
	c, _ := clientOf(t, "http://service", answers(func(r *http.Request) (*http.Response, error) {
		queries = append(queries, r.URL.Query().Get("continuation-token"))
		if len(queries) == 1 {
			return answered(http.StatusOK, `<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>shared</Name><KeyCount>3</KeyCount><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>
<NextContinuationToken>a+b%2F=</NextContinuationToken><Contents><Key>a+b%2Bc/%C3%BC%01</Key><Size>7</Size><LastModified>2026-11-29T01:02:03.456Z</LastModified></Contents>
<Contents><Key>100%</Key></Contents></ListBucketResult>`), nil
		}
		return answered(http.StatusOK, `<ListBucketResult><Contents><Key>a+b%2Bc &amp; d</Key><Size>8</Size></Contents></ListBucketResult>`), nil
	}))
	first := must(c.list(t.Context(), "", "", ""))
	second := must(c.list(t.Context(), "", "", first.Next))
	var got []string
	for _, o := range slices.Concat(first.Objects, second.Objects) {
		got = append(got, fmt.Sprint(o.Key, " ", o.Size, " ", o.Modified.UnixMilli()))
	}
	zero := time.Time{}.UnixMilli()
	want := []string{"a b+c/ü\x01 7 1795914123456", fmt.Sprint("100% 0 ", zero), fmt.Sprint("a+b%2Bc & d 8 ", zero)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !slices.Equal(queries, []string{"", "a+b%2F="}) || !first.More || second.More {
		t.Errorf("pages after %q", queries)
	}
}

// Over real connections: the body of a put is sent again after an answer that came before its end, and connections are
// used again.
func TestAPutIsSentAgain(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 1<<16)
	var made atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if made.Add(1) < attempts {
			w.Header().Set("Connection", "close") // without the body
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code></Error>")
			return
		}
		if body := must(io.ReadAll(r.Body)); string(body) != text {
			t.Errorf("%d bytes arrive", len(body))
		}
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c, _ := clientOf(t, server.URL, transport)
	answer, err := c.do(t.Context(), call{method: http.MethodPut, key: "k", body: strings.NewReader(text), size: int64(len(text)), digest: digestOf(text)})
	if err != nil {
		t.Fatal(err)
	}
	finish(answer)
	if made.Load() != attempts {
		t.Errorf("%d attempts", made.Load())
	}
}
