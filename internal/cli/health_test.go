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

// Every command that asks a running gateway finds it by the listen address of its
// configuration; where that names no port, the ones that can use the store do.
func TestCommandsAskTheGatewayOfTheConfiguration(t *testing.T) {
	noLeaks(t)
	url, stop := serveMinimal(t)
	dir := t.TempDir()
	configured := func(name, listen string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(strings.Replace(minimalFile, "127.0.0.1:0", listen, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	file, noPort := configured("a.yaml", strings.TrimPrefix(url, "http://")), configured("b.yaml", "127.0.0.1:0")
	run := func(env map[string]string, line string) (int, string) {
		var out bytes.Buffer
		lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
		status := Main(t.Context(), Process{Args: strings.Fields(line), Env: lookup, Stdout: &out, Stderr: &out})
		return status, out.String()
	}
	elsewhere := map[string]string{"TURNPIKE_KEY": "k", "TURNPIKE_URL": "http://127.0.0.1:1"}
	for line, want := range map[string]string{
		"keys list":                            " owner ",
		"secrets list":                         "NAME",
		"approvals list":                       "APPROVAL",
		"approvals show apr_0":                 `there is no approval with the id "apr_0"; turnpike approvals list shows those that wait`,
		"approvals approve apr_0":              `there is no approval with the id "apr_0"; turnpike approvals list shows those that wait`,
		"approvals approve .":                  `"." is not the id or name of anything; turnpike approvals list shows what there is`,
		"agents apply none.yaml":               `there is no file none.yaml; name one that exists, or - for the standard input`,
		"runs cancel run_0":                    "there is no run with this id",
		"keys --url " + url + " list":          "turnpike: if any flags in the group [config url] are set none of the others can be",
		"runs cancel run_0 --url " + url:       "there is no run with this id", // --config says where the store is
		"approvals list --url " + url:          "APPROVAL",
		"health":                               url + " is ready",
		"runs cancel run_0 --data " + dir:      "there is no run with this id",
		"approvals list --org o --data " + dir: "APPROVAL",
	} {
		if _, out := run(elsewhere, line+" -c "+file); !strings.Contains(out, want) {
			t.Errorf("%s: %q, want %q", line, out, want)
		}
	}
	if status, out := run(elsewhere, "keys list"); status != 1 || !strings.Contains(out, "cannot reach a gateway at http://127.0.0.1:1") {
		t.Errorf("by the variable: %d %q", status, out)
	}
	for _, url := range []string{"127.0.0.1:8080", "localhost", "ftp://127.0.0.1"} {
		if status, out := run(elsewhere, "keys list --url "+url); status != 1 || !strings.Contains(out, `"`+url+`": it must begin with http://`) {
			t.Errorf("%s: %d %q", url, status, out)
		}
	}
	for _, line := range []string{"keys list", "health"} {
		if status, out := run(elsewhere, line+" -c "+noPort); status != 1 || !strings.Contains(out, "name the gateway with --url") {
			t.Errorf("%s without a port: %d %q", line, status, out)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{file, noPort} { // there is no store either
		if status, out := run(elsewhere, "runs cancel run_0 -c "+file); status != 1 || !strings.Contains(out, "there is no Turnpike data in "+dir) {
			t.Errorf("without a gateway: %d %q", status, out)
		}
	}
}
