package app_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// asked is what "turnpike outbound check" was asked, and says.
type asked struct {
	args   []string
	env    map[string]string
	stdin  string
	file   string // DIR/a.yaml
	status int
	stdout string
	stderr string // a part of it
}

func TestOutboundCheckSaysWhatTheGatewayWouldDo(t *testing.T) {
	Alone(t)
	NewNameserver(t, map[string][]string{
		"a.example.com": {"8.8.8.8", "2606:4700:4700::1111"}, "in.example.com": {"8.8.8.8", "10.0.0.1"}, "tools.svc.cluster.local": {"10.1.2.3"},
	})
	const usual = "outbound: {ssrf: {allowlist_cidrs: [10.1.0.0/16, 127.0.0.0/8]}}\nproviders: [{name: p, api_key: 'env:NOT_SET', models: [m]}]\n" +
		"orgs:\n  - id: o\n    keys: [{name: k, key: 'file:/not/there'}]\n"
	for name, a := range map[string]asked{
		"a name":                          {args: []string{"https://a.example.com/mcp"}, stdout: "ok 8.8.8.8 2606:4700:4700::1111\n"},
		"an address in another's clothes": {args: []string{"--offline", "https://[::ffff:8.8.8.8]/"}, stdout: "ok 8.8.8.8\n"},
		"a name that is not looked up":    {args: []string{"--offline", "https://in.example.com/mcp"}, stdout: "ok in.example.com (not resolved)\n"},
		"a name that leads inside":        {args: []string{"https://in.example.com/mcp"}, status: 1, stdout: "refused private\n"},
		"a name that nobody knows":        {args: []string{"https://nosuch.example.com/mcp"}, status: 1, stdout: "refused unresolved\n"},
		"an empty URL":                    {args: []string{""}, status: 1, stdout: "refused scheme\n"},
		"several URLs": {args: []string{"--offline", "http://127.0.0.1/", "https://8.8.8.8/"}, status: 1,
			stdout: "http://127.0.0.1/\trefused loopback\nhttps://8.8.8.8/\tok 8.8.8.8\n"},
		"lines, as they are": {args: []string{"--offline"}, status: 1, stdin: "https://8.8.8.8/\n http://x.example.com/\nhttp://a\tb/\nhttp://a.example.com/\r\n\nhttp://8.8.4.4/",
			stdout: "https://8.8.8.8/\tok 8.8.8.8\n http://x.example.com/\trefused url_char\n\"http://a\\tb/\"\trefused url_char\n" +
				"\"http://a.example.com/\\r\"\trefused url_char\n\trefused scheme\nhttp://8.8.4.4/\tok 8.8.4.4\n"},
		"lines, asked for": {args: []string{"-", "--offline"}, stdin: "https://8.8.8.8/\n", stdout: "https://8.8.8.8/\tok 8.8.8.8\n"},
		"no lines":         {},
		"a line that hides something": {args: []string{"--offline"}, status: 1, stdin: "http://a\u200bb.example.com/\nhttp://a\xff/\n\x1b[2J\n",
			stdout: "\"http://a\\u200bb.example.com/\"\trefused url_char\n\"http://a\\xff/\"\trefused url_char\n\"\\x1b[2J\"\trefused url_char\n"},
		"the policy of a file, whose secrets are not there": {args: []string{"-c", "DIR/a.yaml", "http://tools.svc.cluster.local:8000/"}, file: usual, stdout: "ok 10.1.2.3\n"},
		"the gateway's own address":                         {args: []string{"-c", "DIR/a.yaml", "http://127.0.0.1:8080/"}, file: usual, status: 1, stdout: "refused self\n"},
		"a variable over the file": {args: []string{"-c", "DIR/a.yaml", "http://tools.svc.cluster.local:8000/"}, file: usual,
			env: map[string]string{"TURNPIKE_OUTBOUND_SSRF_ALLOWLIST_CIDRS": ""}, status: 1, stdout: "refused internal_name\n"},
		"a file that is not there": {args: []string{"-c", "DIR/no.yaml", "http://a.example.com/"}, status: 2, stderr: "no such file"},
		"a file that is wrong":     {args: []string{"-c", "DIR/a.yaml", "http://a.example.com/"}, file: "lsten: x\n", status: 2, stderr: "a.yaml:1:1: lsten: unknown key"},
		"a variable that is wrong": {args: []string{"http://a.example.com/"}, env: map[string]string{"TURNPIKE_OUTBOUND_SSRF_BLOCK_PRIVATE": "off"},
			status: 2, stderr: "want true, false, 1 or 0"},
		"a flag that there is not": {args: []string{"--online"}, status: 2, stderr: "unknown flag: --online"},
	} {
		t.Run(name, func(t *testing.T) { a.check(t) })
	}
}

// Like serve, the command reads turnpike.yaml of the working directory if no file
// is named.
func TestOutboundCheckReadsTheFileThatServeReads(t *testing.T) {
	Alone(t)
	t.Chdir(t.TempDir())
	private := asked{args: []string{"--offline", "http://10.1.2.3:8000/mcp"}, status: 1, stdout: "refused private\n"}
	private.check(t)
	allowed := "outbound: {ssrf: {allowlist_cidrs: [10.1.0.0/16]}}\nproviders: [{name: p, api_key: 'env:NOT_SET', models: [m]}]\n" +
		"orgs:\n  - id: o\n    keys: [{name: k, key: 'env:NOT_SET'}]\n"
	if err := os.WriteFile("turnpike.yaml", []byte(allowed), 0o600); err != nil {
		t.Fatal(err)
	}
	private.status, private.stdout = 0, "ok 10.1.2.3\n"
	private.check(t)
}

func (a asked) check(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(a.file), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"outbound", "check"}
	for _, arg := range a.args {
		args = append(args, strings.Replace(arg, "DIR", dir, 1))
	}
	env := func(name string) (string, bool) { v, ok := a.env[name]; return v, ok }
	var stdout, stderr bytes.Buffer
	status := cli.Main(t.Context(), cli.Process{Args: args, Env: env, Stdin: strings.NewReader(a.stdin), Stdout: &stdout, Stderr: &stderr})
	if status != a.status || stdout.String() != a.stdout {
		t.Errorf("exit status %d, want %d\n%s\nwant\n%s", status, a.status, stdout.String(), a.stdout)
	}
	if !strings.Contains(stderr.String(), a.stderr) || a.stderr == "" && stderr.Len() > 0 {
		t.Errorf("stderr is %q, want %q", stderr.String(), a.stderr)
	}
}

func TestOutboundTeachesAndRefusesWhatItDoesNotKnow(t *testing.T) {
	NoLeaks(t)
	for name, c := range map[string]command{
		"outbound alone teaches":         {args: []string{"outbound"}, stdout: []string{"check", "turnpike outbound [command]"}},
		"help of outbound check":         {args: []string{"outbound", "check", "--help"}, stdout: []string{"exit status is 0", "--offline", "refused REASON"}},
		"an unknown command of outbound": {args: []string{"outbound", "chekc"}, status: 2, stderr: []string{`unknown command "chekc"`}},
		"an unknown flag of outbound":    {args: []string{"outbound", "--x"}, status: 2, stderr: []string{"unknown flag: --x"}},
	} {
		t.Run(name, func(t *testing.T) { c.run(t) })
	}
}

// A verdict comes as soon as its line has, and the end of ctx is not waited for
// by a terminal that says nothing.
func TestOutboundCheckJudgesLinesAsTheyCome(t *testing.T) {
	NoLeaks(t)
	ctx, cancel := context.WithCancel(t.Context())
	in, lines := io.Pipe()
	verdicts, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Main(ctx, cli.Process{Args: []string{"outbound", "check", "--offline"}, Env: NoEnvironment, Stdin: in, Stdout: out, Stderr: io.Discard})
		_ = out.Close()
	}()
	buf := make([]byte, 100)
	for range 3 {
		if _, err := io.WriteString(lines, "http://8.8.8.8/\n"); err != nil {
			t.Fatal(err)
		}
		n, err := verdicts.Read(buf)
		if got := string(buf[:n]); err != nil || got != "http://8.8.8.8/\tok 8.8.8.8\n" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	cancel()
	if status := Wait(t, ended, "the command's end"); status != 2 {
		t.Errorf("exit status %d, want 2", status)
	}
	_ = lines.Close() // its reader ends with it
}

// Every variable reaches the policy of the built program, and its
// exit status is what scripts can rely on. // K02 K03
func TestEachVariableOfTheOutboundPolicyCounts(t *testing.T) {
	NoLeaks(t)
	program := Program(t)
	judged := func(url string, env ...string) (string, int) {
		cmd := exec.Command(program, "outbound", "check", "--offline", url)
		cmd.Env = env
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(out), "\n"), cmd.ProcessState.ExitCode()
	}
	const all = "TURNPIKE_OUTBOUND_SSRF_"
	classes := map[string][2]string{
		"BLOCK_LOOPBACK": {"127.0.0.1", "loopback"}, "BLOCK_PRIVATE": {"10.0.0.1", "private"}, "BLOCK_LINK_LOCAL": {"169.254.1.1", "link_local"},
		"BLOCK_MULTICAST": {"224.0.0.1", "multicast"}, "BLOCK_CGNAT": {"100.64.0.1", "cgnat"}, "BLOCK_ULA_V6": {"fd12::1", "ula"},
	}
	for name, class := range classes {
		host := class[0]
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		for _, tt := range []struct {
			env    string
			want   string
			status int
		}{
			{"UNRELATED=1", "refused " + class[1], 1}, {all + name + "=true", "refused " + class[1], 1}, {all + name + "=false", "ok " + class[0], 0},
			{all + "ALLOWLIST_CIDRS=0.0.0.0/0,::/0", "ok " + class[0], 0}, {all + name + "=no", "", 2},
		} {
			if got, status := judged("http://"+host+"/", tt.env); got != tt.want || status != tt.status {
				t.Errorf("%s with %s: %q, status %d, want %q, status %d", class[0], tt.env, got, status, tt.want, tt.status)
			}
		}
	}
	for _, tt := range [][3]string{
		{"http://8.8.8.8/", "EXTRA_BLOCKED_CIDRS=8.8.0.0/16, 9.0.0.0/8", "refused extra_blocked"}, {"http://9.9.9.9/", "EXTRA_BLOCKED_CIDRS=8.8.0.0/16, 9.0.0.0/8", "refused extra_blocked"},
		{"http://10.1.2.3/", "ALLOWLIST_CIDRS=10.1.0.0/16", "ok 10.1.2.3"}, {"http://10.2.0.1/", "ALLOWLIST_CIDRS=10.1.0.0/16", "refused private"},
		{"http://169.254.169.254/", "ALLOWLIST_CIDRS=0.0.0.0/0", "refused metadata"}, {"http://169.254.169.254/", "ALLOWLIST_CIDRS=169.254.169.254/32", "ok 169.254.169.254"},
	} {
		if got, _ := judged(tt[0], all+tt[1]); got != tt[2] {
			t.Errorf("%s with %s: %q, want %q", tt[0], tt[1], got, tt[2])
		}
	}
}
