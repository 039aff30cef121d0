package cli

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// health runs the command with the arguments and the environment.
func health(t *testing.T, env map[string]string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	status = Main(t.Context(), Process{Args: append([]string{"health"}, args...), Env: lookup, Stdout: &out, Stderr: &errs})
	return status, out.String(), errs.String()
}

func TestHealthAsksTheGatewayThatIsNamed(t *testing.T) {
	noLeaks(t)
	url, stop := serveMinimal(t)
	address := strings.TrimPrefix(url, "http://")
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(file, []byte("listen: "+address+"\nproviders: [{name: d, kind: demo}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
	}{
		"by the flag":                               {nil, []string{"--url", url}},
		"by the flag, with a slash":                 {nil, []string{"--url", url + "/"}},
		"by the flag, before the variable":          {map[string]string{"TURNPIKE_URL": "http://127.0.0.1:1"}, []string{"--url", url}},
		"by the variable":                           {map[string]string{"TURNPIKE_URL": url}, nil},
		"by the file":                               {nil, []string{"--config", file}},
		"by the file, before the variable":          {map[string]string{"TURNPIKE_URL": "http://127.0.0.1:1"}, []string{"-c", file}},
		"by the listen address in a variable":       {map[string]string{"TURNPIKE_LISTEN": address}, nil},
		"by the variable that overrides a file":     {map[string]string{"TURNPIKE_LISTEN": address}, []string{"-c", file}},
		"without the secrets that serve would need": {map[string]string{"TURNPIKE_MASTER_KEY": "env:NOT_SET", "TURNPIKE_LISTEN": address}, nil},
	} {
		status, out, errs := health(t, c.env, c.args...)
		if status != 0 || out != url+" is ready\n" || errs != "" {
			t.Errorf("%s: exit status %d, %q, %q", name, status, out, errs)
		}
	}
	if status, _, errs := health(t, nil, "--config", file, "--url", url); status != 1 || !strings.Contains(errs, "config") {
		t.Errorf("two gateways: exit status %d, %q", status, errs)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if status, out, errs := health(t, nil, "--url", url); status != 1 || out != "" || !strings.HasPrefix(errs, "turnpike: cannot reach a gateway at "+url) {
		t.Errorf("after its end: exit status %d, %q, %q", status, out, errs)
	}
}

func TestHealthSaysWhyAGatewayIsNotHealthy(t *testing.T) {
	noLeaks(t)
	for name, c := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"stopping":       {503, "stopping\n", "does not accept requests: stopping\n"},
		"a full disk":    {503, "not ready: the disk is full\n", "does not accept requests: not ready: the disk is full\n"},
		"another server": {200, "<html>ready</html>", "answered 200 OK, but not as a Turnpike gateway does: check the URL\n"},
		"no such path":   {404, "not found\n", "answered 404 Not Found, but not as a Turnpike gateway does: check the URL\n"},
		"a proxy's page": {503, strings.Repeat("<p>", 1000), "answered 503 Service Unavailable, but not as"},
		"a redirect":     {302, "ready\n", "answered 302 Found, but not as"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" || r.Method != http.MethodGet {
				t.Errorf("%s: asked for %s %s", name, r.Method, r.URL)
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		status, out, errs := health(t, nil, "--url", server.URL)
		if status != 1 || out != "" || !strings.Contains(errs, server.URL) || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit status %d, %q, %q; want %q", name, status, out, errs, c.want)
		}
		server.Close()
	}
}

func TestHealthDoesNotWaitForAGatewayThatHangs(t *testing.T) {
	noLeaks(t)
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := checkHealth(ctx, server.URL); err == nil || !strings.Contains(err.Error(), "does not answer within 3s") {
		t.Errorf("got %v", err)
	}
}

func TestTheAddressThatHealthAsks(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8080":    "http://127.0.0.1:8080",
		"0.0.0.0:8080":      "http://127.0.0.1:8080",
		"[::]:8080":         "http://127.0.0.1:8080",
		"[::1]:80":          "http://[::1]:80",
		"192.0.2.7:8080":    "http://192.0.2.7:8080",
		"gw.internal:08080": "http://gw.internal:08080",
		"127.0.0.1:0":       "",
		"0.0.0.0:00":        "",
	} {
		got, err := localURL(&config.Config{Listen: listen})
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", listen, got, err, want)
		}
	}
}
