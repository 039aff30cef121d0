package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// metric is a metric as the page lists it.
type metric struct {
	Type   string // counter, gauge or histogram
	Labels []string
}

// The page lists every metric of the gateway, with its type and its labels.
func TestTheTelemetryPageListsEveryMetric(t *testing.T) {
	onPage := map[string]metric{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(turnpike_\\w+)` \\| (\\w+) \\|([^|]*)\\|").FindAllStringSubmatch(read(t, "docs/telemetry.md"), -1) {
		m := metric{Type: row[2], Labels: []string{}}
		for _, label := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[3], -1) {
			m.Labels = append(m.Labels, label[1])
		}
		slices.Sort(m.Labels)
		onPage[row[1]] = m
	}
	if diff := cmp.Diff(metricsOfTheCode(t), onPage); diff != "" {
		t.Errorf("internal/telemetry/metrics.go and docs/telemetry.md differ (-code +page):\n%s", diff)
	}
}

// metricsOfTheCode reads how metrics.go makes metrics: counter and secondsHistogram take
// name, help and labels, and the functions of the client library take options and
// a list of labels.
func metricsOfTheCode(t *testing.T) map[string]metric {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "internal", "telemetry", "metrics.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]metric{}
	add := func(kind string, name string, labels []ast.Expr) {
		m := metric{Type: kind, Labels: []string{}}
		for _, l := range labels {
			text, ok := literal(l)
			if !ok {
				t.Errorf("%s: a label is not written as text", name)
			}
			m.Labels = append(m.Labels, text)
		}
		slices.Sort(m.Labels)
		all["turnpike_"+name] = m
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		kinds := map[string]string{"counter": "counter", "secondsHistogram": "histogram", "waitHistogram": "histogram"}
		if name, ok := literal(call.Args[0]); ok && kinds[written(call.Fun)] != "" {
			add(kinds[written(call.Fun)], name, call.Args[2:])
		}
		kind := "gauge"
		if written(call.Fun) == "prometheus.NewCounterFunc" {
			kind = "counter"
		} else if !strings.HasPrefix(written(call.Fun), "prometheus.NewGauge") {
			return true
		}
		name, ok := literal(member(call.Args[0].(*ast.CompositeLit), "Name"))
		if !ok {
			t.Errorf("a metric has a name that is not written as text")
		}
		var labels []ast.Expr
		if len(call.Args) > 1 && strings.HasSuffix(written(call.Fun), "Vec") {
			labels = call.Args[1].(*ast.CompositeLit).Elts
		}
		add(kind, name, labels)
		return true
	})
	if len(all) < 10 {
		t.Fatalf("%d metrics found: has the form of metrics.go changed?", len(all))
	}
	return all
}
