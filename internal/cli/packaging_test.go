package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
)

// The files for installations name commands, flags, variables, users and times of
// the program. These tests compare them with the program itself.

func repositoryFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// parses returns an error unless the arguments are a command of the program with
// flags and arguments that it accepts. Nothing is run.
func parses(args []string) error {
	root := Command(Process{Env: noEnvironment, Stdout: io.Discard, Stderr: io.Discard})
	cmd, rest, err := root.Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err == nil {
		err = cmd.ValidateFlagGroups()
	}
	if err == nil && cmd.HasSubCommands() && len(rest) == 0 {
		err = fmt.Errorf("%q is not a whole command", cmd.CommandPath())
	}
	return err
}

func mustParse(t *testing.T, where string, args []string) {
	t.Helper()
	if err := parses(args); err != nil {
		t.Errorf("%s: turnpike %s: %v", where, strings.Join(args, " "), err)
	}
}

// mustKnowVariables fails the test for variables that nothing in the process reads.
func mustKnowVariables(t *testing.T, where string, names []string) {
	t.Helper()
	known := []string{"TURNPIKE_URL", "TURNPIKE_KEY", "OPENAI_API_KEY", "GOMEMLIMIT"}
	for _, k := range config.Keys() {
		known = append(known, k.Env)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			t.Errorf("%s sets %s, which the program does not read", where, name)
		}
	}
	if len(names) == 0 {
		t.Errorf("%s sets no variable", where)
	}
}

func TestOnlyCommandsOfTheProgramParse(t *testing.T) {
	for _, bad := range [][]string{
		{}, {"sevre"}, {"serve", "--prot", "1"}, {"health", "x"}, {"keys"}, {"keys", "made"}, {"health", "--url", "u", "--config", "c"}, {"backup"},
	} {
		if parses(bad) == nil {
			t.Errorf("turnpike %q is accepted", bad)
		}
	}
	for _, good := range [][]string{{"--version"}, {"serve", "--config", "x.yaml"}, {"keys", "create", "a", "--role", "member"}, {"config", "init"}} {
		if err := parses(good); err != nil {
			t.Errorf("turnpike %q: %v", good, err)
		}
	}
}

// image is what the instructions of the Dockerfile's last stage set.
type image struct {
	all  []instruction // of all stages
	last []instruction
}

type instruction struct{ name, args string }

func readDockerfile(t *testing.T) image {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(repositoryFile(t, "Dockerfile")) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			text.WriteString(line)
		}
	}
	var all []instruction
	begin := 0
	for line := range strings.Lines(strings.ReplaceAll(text.String(), "\\\n", " ")) {
		name, args, _ := strings.Cut(strings.Join(strings.Fields(line), " "), " ")
		if name == "" {
			continue
		}
		if name == "FROM" {
			begin = len(all)
		}
		all = append(all, instruction{name, args})
	}
	return image{all, all[begin:]}
}

// one returns the arguments of the only instruction of the last stage with the name.
func (i image) one(t *testing.T, name string) string {
	t.Helper()
	found := i.each(name)
	if len(found) != 1 {
		t.Fatalf("the Dockerfile has %d times %s in its last stage, want once", len(found), name)
	}
	return found[0]
}

func (i image) each(name string) (args []string) {
	for _, in := range i.last {
		if in.name == name {
			args = append(args, in.args)
		}
	}
	return args
}

// exec returns the words of an instruction in exec form: the image has no shell.
func (i image) exec(t *testing.T, name string) (words []string) {
	t.Helper()
	args := i.one(t, name)
	if err := json.Unmarshal([]byte(args), &words); err != nil {
		t.Fatalf("%s %s is not in exec form: %v", name, args, err)
	}
	return words
}

func (i image) env(t *testing.T) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, pair := range strings.Fields(i.one(t, "ENV")) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

func TestTheImageServesAsAUserWithoutPrivileges(t *testing.T) {
	i := readDockerfile(t)
	if from := i.one(t, "FROM"); from != "scratch" {
		t.Errorf("the last stage is FROM %s", from)
	}
	user := i.one(t, "USER")
	if !regexp.MustCompile(`^[1-9][0-9]{3,}:[1-9][0-9]{3,}$`).MatchString(user) {
		t.Errorf("USER %s: want the numbers of a user and a group that are not the system's", user)
	}
	env, volume := i.env(t), i.one(t, "VOLUME")
	mustKnowVariables(t, "the Dockerfile", slices.Collect(maps.Keys(env)))
	if path.Dir(env["TURNPIKE_DATA"]) != volume {
		t.Errorf("TURNPIKE_DATA=%s is not a directory in the volume %s", env["TURNPIKE_DATA"], volume)
	}
	if !slices.Contains(i.each("COPY"), "--from=build --chown="+user+" /volume/ /") {
		t.Errorf("no COPY gives the volume to %s", user)
	}
	listen, err := netip.ParseAddrPort(env["TURNPIKE_LISTEN"])
	if err != nil || !listen.Addr().IsUnspecified() || i.one(t, "EXPOSE") != strconv.Itoa(int(listen.Port())) {
		t.Errorf("the image listens on %s and exposes %s: %v", env["TURNPIKE_LISTEN"], i.one(t, "EXPOSE"), err)
	}
	if local, err := localURL(&config.Config{Listen: env["TURNPIKE_LISTEN"]}); err != nil || local != env["TURNPIKE_URL"] {
		t.Errorf("commands in the container ask %s, and the gateway is at %s: %v", env["TURNPIKE_URL"], local, err)
	}
	program := i.exec(t, "ENTRYPOINT")
	if len(program) != 1 || !slices.ContainsFunc(i.all, func(in instruction) bool { return strings.Contains(in.args, "-o /image"+program[0]+" ./cmd/turnpike") }) {
		t.Errorf("ENTRYPOINT %q is not what the image is built with", program)
	}
	mustParse(t, "Dockerfile: CMD", i.exec(t, "CMD"))
	for _, in := range i.last {
		if in.name == "RUN" || in.name == "ADD" {
			t.Errorf("the last stage has %s %s, and no program to run it", in.name, in.args)
		}
	}
}

func TestTheImageChecksItsHealthWithTheProgramItself(t *testing.T) {
	i := readDockerfile(t)
	options, check, _ := strings.Cut(i.one(t, "HEALTHCHECK"), " CMD ")
	var words []string
	if err := json.Unmarshal([]byte(check), &words); err != nil || len(words) < 2 || words[0] != i.exec(t, "ENTRYPOINT")[0] {
		t.Fatalf("HEALTHCHECK CMD %s is not in exec form with the program: %v", check, err)
	}
	mustParse(t, "Dockerfile: HEALTHCHECK", words[1:])
	m := regexp.MustCompile(`--timeout=(\S+)`).FindStringSubmatch(options)
	if len(m) == 0 || duration(t, m[1]) <= healthTimeout {
		t.Errorf("HEALTHCHECK %s: want a timeout longer than the command's own, %s", options, healthTimeout)
	}
}

func TestTheImageIsBuiltAsAStaticBinaryWithItsVersion(t *testing.T) {
	i := readDockerfile(t)
	find := func(want string) string {
		k := slices.IndexFunc(i.all, func(in instruction) bool { return strings.Contains(in.args, want) })
		if k < 0 {
			t.Fatalf("no instruction of the Dockerfile has %q", want)
		}
		return i.all[k].args
	}
	build := find("go build")
	for _, want := range []string{"CGO_ENABLED=0", "-trimpath", "-tags grpcnotrace", "-X " + versionVariable + "=$VERSION", "GOOS=$TARGETOS", "GOARCH=$TARGETARCH"} {
		if !strings.Contains(build, want) {
			t.Errorf("the build does not have %s: %s", want, build)
		}
	}
	find("ca-certificates.crt /image/etc/ssl/certs/")
	want := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(repositoryFile(t, "go.mod"))[1]
	if from := find("golang:"); !strings.Contains(from, "golang:"+want+"-") {
		t.Errorf("FROM %s, and go.mod wants Go %s", from, want)
	}
}

// versionVariable is what release builds set.
const versionVariable = "github.com/turnpike-gateway/turnpike/internal/app.release"

func TestTheBuildOfTheImageSeesAllPackages(t *testing.T) {
	var sent []string // into the build
	lines := strings.Split(strings.TrimSpace(repositoryFile(t, ".dockerignore")), "\n")
	for _, line := range lines {
		if name, ok := strings.CutPrefix(line, "!"); ok {
			sent = append(sent, name)
		}
	}
	if !slices.Contains(lines, "*") || !slices.Contains(sent, "go.mod") || !slices.Contains(sent, "go.sum") {
		t.Errorf(".dockerignore does not begin with nothing, or go.mod is not sent: %q", lines)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", "./cmd/turnpike")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	needed := map[string]bool{"go.mod": true, "go.sum": true}
	for _, p := range strings.Fields(string(out)) {
		top, _, _ := strings.Cut(strings.TrimPrefix(p, "github.com/turnpike-gateway/turnpike/"), "/")
		needed[top] = true
	}
	if want := slices.Sorted(maps.Keys(needed)); !slices.Equal(want, slices.Sorted(slices.Values(sent))) {
		t.Errorf(".dockerignore sends %q, and the program needs %q", sent, want)
	}
}

// composeService is what compose.yaml says of the gateway.
type composeService struct {
	Ports       []string
	Environment map[string]any
	Configs     []struct{ Source, Target string }
	Volumes     []string
	Healthcheck struct {
		Test    []string
		Timeout string
	}
	StopGracePeriod string `yaml:"stop_grace_period"`
	User            string
	ReadOnly        bool     `yaml:"read_only"`
	CapDrop         []string `yaml:"cap_drop"`
	CapAdd          []string `yaml:"cap_add"`
	SecurityOpt     []string `yaml:"security_opt"`
	Privileged      bool
	Command         []string
	MemLimit        string `yaml:"mem_limit"`
}

func TestComposeStartsTheGatewayWithoutPrivileges(t *testing.T) {
	var c struct {
		Services map[string]composeService
		Configs  map[string]struct{ File string }
		Volumes  map[string]any
	}
	if err := yaml.Unmarshal([]byte(repositoryFile(t, "compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	s, i := c.Services["turnpike"], readDockerfile(t)
	if !s.ReadOnly || s.Privileged || len(s.CapAdd) > 0 || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || s.User != i.one(t, "USER") {
		t.Errorf("the container has privileges: %+v", s)
	}
	for _, p := range s.Ports {
		if !strings.HasPrefix(p, "127.0.0.1:") || !strings.HasSuffix(p, ":"+i.one(t, "EXPOSE")) {
			t.Errorf("the port %s: want one of this machine only, to %s", p, i.one(t, "EXPOSE"))
		}
	}
	names := slices.Collect(maps.Keys(s.Environment))
	mustKnowVariables(t, "compose.yaml", names)
	if hosts, _ := s.Environment["TURNPIKE_PUBLIC_HOSTS"].(string); !strings.Contains(hosts, "localhost") {
		t.Error("the gateway answers to every name: it cannot see that its port is this machine's only")
	}
	source := c.Configs[s.Configs[0].Source].File
	if s.Configs[0].Target != path.Join(i.one(t, "WORKDIR"), usualFile) {
		t.Errorf("the configuration is at %s, and the gateway reads %s in %s", s.Configs[0].Target, usualFile, i.one(t, "WORKDIR"))
	}
	for _, m := range regexp.MustCompile(`env:(\w+)`).FindAllStringSubmatch(repositoryFile(t, source), -1) {
		if !slices.Contains(names, m[1]) {
			t.Errorf("%s refers to %s, which compose.yaml does not set", source, m[1])
		}
	}
	name, target, _ := strings.Cut(s.Volumes[0], ":")
	if _, ok := c.Volumes[name]; !ok || target != i.one(t, "VOLUME") {
		t.Errorf("the volume %s: want a named one at %s", s.Volumes[0], i.one(t, "VOLUME"))
	}
	if h := s.Healthcheck.Test; len(h) < 3 || h[0] != "CMD" || h[1] != i.exec(t, "ENTRYPOINT")[0] || duration(t, s.Healthcheck.Timeout) <= healthTimeout {
		t.Errorf("the health check %+v", s.Healthcheck)
	} else {
		mustParse(t, "compose.yaml: healthcheck", h[2:])
	}
	if got := duration(t, s.StopGracePeriod); got <= app.StopsWithin {
		t.Errorf("stop_grace_period is %s, and the gateway may need %s", got, app.StopsWithin)
	}
	if limit, _ := s.Environment["GOMEMLIMIT"].(string); limit != "900MiB" || s.MemLimit != "1g" {
		t.Errorf("GOMEMLIMIT=%s, mem_limit: %s: want the first below the second", limit, s.MemLimit)
	}
}

func TestTheUnitStartsTheGatewayWithoutPrivileges(t *testing.T) {
	unit := map[string][]string{}
	section := ""
	for line := range strings.Lines(repositoryFile(t, "deploy/turnpike.service")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
		}
		if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			unit[section+"."+name] = append(unit[section+"."+name], value)
		}
	}
	for name, want := range map[string]string{
		"User": "turnpike", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "ProtectSystem": "strict", "ProtectHome": "yes",
		"PrivateTmp": "yes", "RestrictSUIDSGID": "yes", "SystemCallFilter": "@system-service", "UMask": "0077", "Restart": "on-failure",
		"StateDirectory": "turnpike", "WorkingDirectory": "/var/lib/turnpike", "KillMode": "mixed",
		"Type": "exec", // the program does not notify systemd
	} {
		if got := unit["Service."+name]; len(got) == 0 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := unit["Service.ExecReload"]; !slices.Equal(got, []string{"/bin/kill -HUP $MAINPID"}) {
		t.Errorf("ExecReload=%q: the program reads its configuration again at SIGHUP", got)
	}
	start := strings.Fields(unit["Service.ExecStart"][0])
	if !path.IsAbs(start[0]) || path.Base(start[0]) != "turnpike" {
		t.Errorf("ExecStart begins with %s", start[0])
	}
	mustParse(t, "turnpike.service: ExecStart", start[1:])
	if got := duration(t, unit["Service.TimeoutStopSec"][0]); got <= app.StopsWithin {
		t.Errorf("TimeoutStopSec is %s, and the gateway may need %s", got, app.StopsWithin)
	}
}

func TestTheExampleConfigurationIsWhatInitWrites(t *testing.T) {
	if got, want := repositoryFile(t, "deploy/turnpike.yaml"), fmt.Sprintf(firstConfig, usualFile); got != want {
		t.Errorf("deploy/turnpike.yaml is not what turnpike config init writes. Run: (cd deploy && rm turnpike.yaml && go run ../cmd/turnpike config init && chmod 644 turnpike.yaml)\n%s", got)
	}
}

// Commands on the page that are not run, because they need an engine or systemd,
// are at least commands of the program.
func TestTheCommandsOfTheInstallationPageExist(t *testing.T) {
	found := 0
	for _, block := range regexp.MustCompile("(?s)\n```sh[^\n]*\n(.*?)\n```\n").FindAllStringSubmatch(repositoryFile(t, "docs/install.md"), -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			line = regexp.MustCompile(`\s#\s.*| \d?[|>&].*`).ReplaceAllString(line, "")
			words := strings.Fields(strings.ReplaceAll(line, ";", " ; "))
			if i := slices.Index(words, ";"); i >= 0 { // of a loop: until COMMAND; do …
				words = words[:i]
			}
			if i := lastProgram(words); i >= 0 {
				found++
				mustParse(t, "docs/install.md: "+strings.TrimSpace(line), words[i+1:])
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d commands", found)
	}
}

// lastProgram returns where the words run turnpike, also in a container, where the
// word before it may be the name of the service; -1 if they do not.
func lastProgram(words []string) int {
	if len(words) > 0 && words[0] == "sudo" && !slices.Contains(words, "-u") || len(words) > 1 && words[0] == "docker" && !slices.ContainsFunc(words, func(w string) bool { return w == "run" || w == "exec" }) {
		return -1 // install, useradd, systemctl; docker build
	}
	last := -1
	for i, w := range words[:max(0, len(words)-1)] {
		if path.Base(w) == "turnpike" && !strings.HasPrefix(words[i+1], "--") || path.Base(w) == "turnpike" && words[i+1] == "--version" {
			last = i
		}
	}
	return last
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
