package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/httpd"
)

// The files in deploy/replicas run two replicas. No containers run here: these tests compare what the files name with
// what the program takes.

const replicasDirectory = "deploy/replicas/"

// sampleSecrets are values of the variables and secrets that the files leave to the operator.
func sampleSecrets() map[string]string {
	sum := sha256.Sum256([]byte("not a key"))
	key := base64.StdEncoding.EncodeToString(sum[:])
	return map[string]string{
		"OPENAI_API_KEY": "sk-test", "TURNPIKE_KEY": "choose-a-long-random-text",
		"MASTER_KEY": key, "DATABASE_PASSWORD": "0123456789abcdef",
		"database-url": "postgres://turnpike:secret@db.example.com/turnpike", "turnpike-key": "choose-a-long-random-text",
		"master-key": key, "openai-api-key": "sk-test",
	}
}

// checkedConfiguration returns the configuration, which turnpike config check accepts with these variables.
func checkedConfiguration(t *testing.T, where, text string, env map[string]string) *config.Config {
	t.Helper()
	file := path.Join(t.TempDir(), usualFile)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	var out, problems bytes.Buffer
	code := Main(t.Context(), Process{Args: []string{"config", "check", file}, Env: lookup, Stdout: &out, Stderr: &problems})
	if code != 0 {
		t.Fatalf("%s: turnpike config check: status %d: %s%s", where, code, out.String(), problems.String())
	}
	c, err := config.Parse(file, []byte(text), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if !c.UsesPostgres() || c.Replica == nil {
		t.Fatalf("%s: it is not the configuration of replicas on PostgreSQL", where)
	}
	return c
}

// mustUse fails the test unless the configuration refers to every variable that is set, or the program reads it by itself.
func mustUse(t *testing.T, where, text string, env map[string]string) {
	t.Helper()
	var refers []string
	for _, m := range regexp.MustCompile(`env:(\w+)`).FindAllStringSubmatch(text, -1) {
		refers = append(refers, m[1])
		if _, ok := env[m[1]]; !ok {
			t.Errorf("%s: the configuration refers to %s, which is not set", where, m[1])
		}
	}
	var others []string
	for name := range env {
		if !slices.Contains(refers, name) {
			others = append(others, name)
		}
	}
	mustKnowVariables(t, where, others)
}

// stopsWithin is the longest time that a replica with the configuration takes to stop.
func stopsWithin(c *config.Config) time.Duration {
	const usualDrain = 20 * time.Second
	return app.StopsWithin - usualDrain + c.Replica.Drain
}

// mustProbe fails the test unless the path answers without a key, as ready or not.
func mustProbe(t *testing.T, where, probe string) {
	t.Helper()
	api, err := httpd.New(httpd.Options{Log: slog.New(slog.DiscardHandler), Document: http.NotFound})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, probe, nil))
	if w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable {
		t.Errorf("%s asks %s, and the gateway answers %d", where, probe, w.Code)
	}
}

func TestComposeStartsTwoReplicas(t *testing.T) {
	var c struct {
		Services map[string]composeService
		Configs  map[string]struct{ File string }
		Volumes  map[string]any
	}
	text := repositoryFile(t, replicasDirectory+"compose.yaml")
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	i := readDockerfile(t)
	ids, places := map[string]bool{}, map[string]bool{}
	for _, name := range []string{"gateway-a", "gateway-b"} {
		s := c.Services[name]
		if !s.ReadOnly || len(s.CapAdd) > 0 || !slices.Equal(s.CapDrop, []string{"ALL"}) || s.User != i.one(t, "USER") || len(s.Ports) > 0 {
			t.Errorf("%s has privileges, or ports of the machine: %+v", name, s)
		}
		env := map[string]string{}
		for key, value := range s.Environment {
			env[key] = expanded(value)
		}
		file := repositoryFile(t, replicasDirectory+c.Configs[s.Configs[0].Source].File)
		got := checkedConfiguration(t, name, file, env)
		mustUse(t, name, file, env)
		if s.Configs[0].Target != path.Join(i.one(t, "WORKDIR"), usualFile) {
			t.Errorf("%s: the configuration is at %s", name, s.Configs[0].Target)
		}
		if within := duration(t, s.StopGracePeriod); within <= stopsWithin(got) {
			t.Errorf("%s: stop_grace_period is %s, and the gateway may need %s", name, within, stopsWithin(got))
		}
		if h := s.Healthcheck.Test; h[1] != i.exec(t, "ENTRYPOINT")[0] || duration(t, s.Healthcheck.Timeout) <= healthTimeout {
			t.Errorf("%s: the health check %+v", name, s.Healthcheck)
		} else {
			mustParse(t, name, h[2:])
		}
		volume, target, _ := strings.Cut(s.Volumes[0], ":")
		if _, ok := c.Volumes[volume]; !ok || target != i.one(t, "VOLUME") || places[volume] || ids[got.Replica.ID] || got.Replica.ID == "" {
			t.Errorf("%s: want a volume and an id of its own: %s, %q", name, s.Volumes[0], got.Replica.ID)
		}
		places[volume], ids[got.Replica.ID] = true, true
		if !slices.Equal(got.PublicHosts, []string{"localhost", "balancer"}) { // the names of the load balancer
			t.Errorf("%s: public_hosts are %q", name, got.PublicHosts)
		}
		mustBeTheDatabase(t, c.Services["postgres"], env["DATABASE_URL"], got.Postgres.Schema)
	}
}

// expanded is a value of compose.yaml, with sample secrets.
func expanded(value any) string {
	text, _ := value.(string)
	return regexp.MustCompile(`\$\{(\w+)[^}]*\}`).ReplaceAllStringFunc(text, func(s string) string {
		return sampleSecrets()[regexp.MustCompile(`\w+`).FindString(s)]
	})
}

// mustBeTheDatabase fails the test unless the URL is that of the service, and the role and the schema are those that it makes.
func mustBeTheDatabase(t *testing.T, s composeService, address, schema string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	name, secret := expanded(s.Environment["POSTGRES_DB"]), expanded(s.Environment["TURNPIKE_DATABASE_PASSWORD"])
	if u.Hostname() != "postgres" || u.Path != "/"+name || password != secret {
		t.Errorf("the gateway uses %s, and the service is %+v", address, s.Environment)
	}
	made := repositoryFile(t, replicasDirectory+"postgres-init.sh")
	role := u.User.Username()
	for _, want := range []string{"CREATE ROLE " + role + " LOGIN NOSUPERUSER", "CREATE SCHEMA " + schema + " AUTHORIZATION " + role} {
		if !strings.Contains(made, want) {
			t.Errorf("postgres-init.sh does not have %q", want)
		}
	}
}

func TestTheLoadBalancerAsksReplicasWhetherTheyAreReady(t *testing.T) {
	text := repositoryFile(t, replicasDirectory+"Caddyfile")
	port := readDockerfile(t).one(t, "EXPOSE")
	if !strings.Contains(text, "reverse_proxy gateway-a:"+port+" gateway-b:"+port+" {") || !strings.Contains(text, "\n:8080 {") {
		t.Error("the load balancer does not lead from port 8080 to both replicas")
	}
	probe := regexp.MustCompile(`health_uri (\S+)`).FindStringSubmatch(text)
	if len(probe) == 0 || probe[1] != "/readyz" {
		t.Fatalf("the load balancer asks %q", probe)
	}
	mustProbe(t, "the Caddyfile", probe[1])
	for _, never := range []string{"flush_interval -1", "lb_retry_match", "read_timeout", "response_header_timeout"} {
		if strings.Contains(text, "\n\t\t"+never) {
			t.Errorf("%s: requests go on without their client, are repeated, or are cut off", never)
		}
	}
}

// object is what the tests read of an object of Kubernetes.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Replicas     int
		MinAvailable int `yaml:"minAvailable"`
		Selector     any
		Ports        []struct {
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
	}
}

type podSpec struct {
	Grace           int `yaml:"terminationGracePeriodSeconds"`
	SecurityContext struct {
		RunAsUser    int  `yaml:"runAsUser"`
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
	} `yaml:"securityContext"`
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
	}
}

type container struct {
	Args  []string
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Env []struct {
		Name, Value string
		ValueFrom   struct {
			SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
			FieldRef     struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	ReadinessProbe probe `yaml:"readinessProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	Lifecycle      struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	VolumeMounts []struct {
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// manifests returns the objects of the file, by kind.
func manifests(t *testing.T) map[string]object {
	t.Helper()
	all := map[string]object{}
	d := yaml.NewDecoder(strings.NewReader(repositoryFile(t, replicasDirectory+"kubernetes.yaml")))
	for {
		var m object
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[m.Kind] = m
	}
}

func TestKubernetesStartsTwoReplicas(t *testing.T) {
	all, i := manifests(t), readDockerfile(t)
	if kinds := slices.Sorted(maps.Keys(all)); !slices.Equal(kinds, []string{"ConfigMap", "Deployment", "PodDisruptionBudget", "Service"}) {
		t.Fatalf("the objects are %q", kinds)
	}
	d := all["Deployment"].Spec
	pod := d.Template.Spec
	c := pod.Containers[0]
	mustParse(t, "kubernetes.yaml: args", c.Args)
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
		switch from := e.ValueFrom; {
		case from.SecretKeyRef.Name != "":
			env[e.Name] = sampleSecrets()[from.SecretKeyRef.Key]
		case from.FieldRef.FieldPath == "metadata.name":
			env[e.Name] = "turnpike-5d9f7c6b8-abcde"
		}
		if env[e.Name] == "" {
			t.Errorf("%s has no value that this test knows", e.Name)
		}
	}
	text := all["ConfigMap"].Data[usualFile]
	got := checkedConfiguration(t, "kubernetes.yaml", text, env)
	mustUse(t, "kubernetes.yaml", text, env)
	if got.Replica.ID != env["TURNPIKE_REPLICA_ID"] {
		t.Errorf("the id of a replica is %q, not the name of its pod", got.Replica.ID)
	}
	pause := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if grace := time.Duration(pod.Grace) * time.Second; grace <= pause+stopsWithin(got) {
		t.Errorf("terminationGracePeriodSeconds is %s, and preStop and the gateway may need %s", grace, pause+stopsWithin(got))
	}
	security := pod.SecurityContext
	if user := strings.Split(i.one(t, "USER"), ":")[0]; !security.RunAsNonRoot || user != strconv.Itoa(security.RunAsUser) {
		t.Errorf("the user is not that of the image, %s: %+v", user, pod.SecurityContext)
	}
	var mounts []string
	for _, m := range c.VolumeMounts {
		mounts = append(mounts, m.MountPath)
	}
	want := []string{i.one(t, "WORKDIR"), i.one(t, "VOLUME")}
	if !slices.Equal(mounts, want) || pod.Volumes[0].ConfigMap.Name != all["ConfigMap"].Metadata.Name {
		t.Errorf("what is mounted: %q, %+v", mounts, pod.Volumes)
	}
	if d.Replicas != 2 || all["PodDisruptionBudget"].Spec.MinAvailable != 1 {
		t.Errorf("%d replicas, of which %d must stay", d.Replicas, all["PodDisruptionBudget"].Spec.MinAvailable)
	}
}

func TestKubernetesAsksReplicasWhetherTheyAreReady(t *testing.T) {
	all := manifests(t)
	d := all["Deployment"].Spec
	c := d.Template.Spec.Containers[0]
	port := c.Ports[0]
	if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" {
		t.Errorf("probes: %+v, %+v", c.ReadinessProbe, c.LivenessProbe)
	}
	for _, p := range []probe{c.ReadinessProbe, c.LivenessProbe} {
		mustProbe(t, "kubernetes.yaml", p.HTTPGet.Path)
		if p.HTTPGet.Port != port.Name {
			t.Errorf("a probe asks the port %s, and the container has %s", p.HTTPGet.Port, port.Name)
		}
	}
	if s := all["Service"].Spec; s.Ports[0].TargetPort != port.Name || s.Ports[0].Port != port.ContainerPort {
		t.Errorf("the service leads to %+v", s.Ports)
	}
	labels := map[string]any{}
	for name, value := range d.Template.Metadata.Labels {
		labels[name] = value
	}
	matching := map[string]any{"matchLabels": labels}
	for kind, selector := range map[string]any{"Service": labels, "Deployment": matching, "PodDisruptionBudget": matching} {
		if got, _ := yaml.Marshal(all[kind].Spec.Selector); string(got) != mustMarshal(t, selector) {
			t.Errorf("%s selects %s, and pods have %v", kind, got, labels)
		}
	}
}

func mustMarshal(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
