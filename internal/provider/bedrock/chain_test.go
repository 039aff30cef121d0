package bedrock

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// isolated removes everything of AWS from the environment of the test, and lets the chain
// reach no address but those of servers of the test.
func isolated(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// places is a server that plays the role endpoints of AWS, and a client that reaches no
// other server.
type places struct {
	*httptest.Server
	client *http.Client

	mu    sync.Mutex // guards what follows
	asked []string
	ends  time.Time // of the credentials that are given out
	given int
}

func newPlaces(t *testing.T) *places {
	t.Helper()
	p := &places{ends: time.Now().Add(time.Hour)}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	p.client = &http.Client{Timeout: 5 * time.Second, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if "http://"+r.URL.Host != p.URL {
			return nil, fmt.Errorf("a test must not reach %s", r.URL.Host)
		}
		return p.Client().Transport.RoundTrip(r)
	})}
	t.Cleanup(p.Client().CloseIdleConnections)
	return p
}

func (p *places) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r.Method+" "+r.URL.Path)
	switch r.URL.Path {
	case "/latest/api/token":
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
		_, _ = w.Write([]byte("token"))
	case "/latest/meta-data/iam/security-credentials/":
		_, _ = w.Write([]byte("role"))
	case "/latest/meta-data/iam/security-credentials/role", "/container":
		p.given++
		_ = json.NewEncoder(w).Encode(map[string]any{ // a client that has gone does not matter
			"Code": "Success", "AccessKeyId": fmt.Sprint("AKID", p.given), "SecretAccessKey": "secret", "Token": "token", "Expiration": p.ends.UTC().Format(time.RFC3339),
		})
	case "/":
		p.given++
		w.Header().Set("Content-Type", "text/xml")
		_, _ = fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AKID%d</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>token</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, p.given, p.ends.UTC().Format(time.RFC3339))
	default:
		http.NotFound(w, r)
	}
}

func (p *places) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The places in which AWS's own clients look, in their order, with every request
// sent by the gateway's client. // M04
func TestTheCredentialChain(t *testing.T) {
	for name, tt := range map[string]struct {
		setup func(t *testing.T, p *places)
		want  string // the key id
		asked string // the requests
	}{
		"variables": {func(t *testing.T, _ *places) {
			t.Setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
		}, "AKIDENV", ""},
		"the default profile": {func(t *testing.T, _ *places) {
			write(t, os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), "[default]\naws_access_key_id = AKIDFILE\naws_secret_access_key = s\n")
		}, "AKIDFILE", ""},
		"another profile": {func(t *testing.T, _ *places) {
			write(t, os.Getenv("AWS_CONFIG_FILE"), "[profile work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = s\n")
			t.Setenv("AWS_PROFILE", "work")
		}, "AKIDWORK", ""},
		"the container": {func(t *testing.T, p *places) {
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", p.URL+"/container")
		}, "AKID1", "GET /container"},
		"the machine": {func(t *testing.T, p *places) {
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", p.URL)
		}, "AKID1", "PUT /latest/api/token GET /latest/meta-data/iam/security-credentials/ GET /latest/meta-data/iam/security-credentials/role"},
		"a web identity": {func(t *testing.T, p *places) {
			write(t, filepath.Join(os.Getenv("HOME"), "token"), "jwt")
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", filepath.Join(os.Getenv("HOME"), "token"))
			t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")
			t.Setenv("AWS_ENDPOINT_URL_STS", p.URL)
		}, "AKID1", "POST /"},
	} {
		t.Run(name, func(t *testing.T) {
			isolated(t)
			p := newPlaces(t)
			tt.setup(t, p)
			find := Chain("us-east-1", p.client, "a, b")
			if asked := p.requests(); len(asked) != 0 {
				t.Fatalf("%v before a request needs credentials", asked)
			}
			for range 3 { // and they are kept
				got, err := find(t.Context())
				if err != nil || got.AccessKeyID != tt.want {
					t.Fatalf("%+v, %v", got.AccessKeyID, err)
				}
			}
			if asked := strings.Join(p.requests(), " "); asked != tt.asked {
				t.Errorf("asked %s, want %s", asked, tt.asked)
			}
		})
	}
}

// Credentials are looked up again before they expire.
func TestCredentialsAreRefreshed(t *testing.T) {
	isolated(t)
	p := newPlaces(t)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", p.URL+"/container")
	p.ends = time.Now().Add(refreshBefore - time.Minute) // valid, and not for long
	find := Chain("us-east-1", p.client, "a, b")
	for n := 1; n <= 3; n++ {
		if got, err := find(t.Context()); err != nil || got.AccessKeyID != fmt.Sprint("AKID", n) {
			t.Errorf("%d: %s, %v", n, got.AccessKeyID, err)
		}
	}
}

// An error says where credentials can be, and does not stay.
func TestNoCredentials(t *testing.T) {
	isolated(t)
	p := newPlaces(t)
	find := Chain("us-east-1", p.client, "a, b")
	_, err := find(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no AWS credentials were found: set a, b, AWS_ACCESS_KEY_ID") {
		t.Errorf("%v", err)
	}
	if asked := p.requests(); len(asked) != 0 {
		t.Errorf("asked %v", asked)
	}
	t.Setenv("AWS_PROFILE", "none")
	if _, err := Chain("us-east-1", p.client, "a, b")(t.Context()); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("an unknown profile: %v", err)
	}
}

// A place that does not answer delays a request for a bounded time, and not at all if its
// client leaves. The lookup goes on for the next request.
func TestALookupThatTakesTooLong(t *testing.T) {
	isolated(t)
	p := newPlaces(t)
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	next := p.client.Transport
	p.client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		asked <- struct{}{}
		select {
		case <-answer:
			return next.RoundTrip(r)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	})
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", p.URL+"/container")
	p.client.Timeout = 50 * time.Millisecond
	if _, err := Chain("us-east-1", p.client, "a, b")(t.Context()); err == nil || len(asked) == 0 {
		t.Errorf("%v after %d requests", err, len(asked))
	}
	for len(asked) > 0 {
		<-asked
	}
	p.client.Timeout = 5 * time.Second
	find := Chain("us-east-1", p.client, "a, b")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := find(ctx); done <- err }()
	<-asked
	cancel()
	if err := <-done; err == nil {
		t.Error("credentials of nowhere")
	}
	close(answer)
	if got, err := find(t.Context()); err != nil || got.AccessKeyID == "" {
		t.Error(err)
	}
}
