package docs_test

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// machine is what the blocks of a page find where the tests run.
type machine struct {
	node     bool                             // Node and the packages of conformance/ are there
	postgres bool                             // a PostgreSQL server is there
	missing  func(programs []string) []string // those that are not installed
}

// skips returns, for each block, why it cannot run here, "" for nothing. A block
// is skipped if it needs Node, PostgreSQL or a program that is not installed, or if it uses
// what a skipped block above it would have made: a variable, a function or a file.
func skips(blocks []block, m machine) []string {
	why := make([]string, len(blocks))
	lost := map[string]int{} // what skipped blocks would have made, and the line of the block
	functions := made(blocks, functionMade)
	files := map[string]string{} // of the page
	for i, b := range blocks {
		if name := b.value("file"); name != "" {
			delete(lost, name)
			files[name] = b.text
		}
		if !b.isCommand() {
			continue
		}
		why[i] = cmp.Or(needsMore(b, m, functions), usesLost(b.text+variablesOf(files, b), lost))
		for _, name := range makes(b) {
			if why[i] != "" {
				lost[name] = b.line
			} else {
				delete(lost, name)
			}
		}
	}
	return why
}

// isCommand reports whether the block is run, on a machine that has all it needs.
func (b block) isCommand() bool { return b.lang == "sh" && !b.is("elsewhere") && !b.is("ci") }

const (
	noNode     = "Node, or the packages of conformance/, are not installed"
	noPostgres = "TURNPIKE_TEST_POSTGRES_URL names no PostgreSQL server"
)

func needsMore(b block, m machine, functions []string) string {
	programs := slices.DeleteFunc(programsOf(b), func(name string) bool { return slices.Contains(functions, name) })
	node := func(name string) bool { return slices.Contains([]string{"node", "npm", "npx"}, name) }
	if !m.node && (b.value("needs") == "node" || slices.ContainsFunc(programs, node)) {
		return noNode
	}
	if !m.postgres && b.value("needs") == "postgres" {
		return noPostgres
	}
	if missing := m.missing(programs); len(missing) > 0 {
		return "not installed: " + strings.Join(missing, ", ")
	}
	return ""
}

var inConfiguration = regexp.MustCompile(`env:([A-Za-z_]\w*)`)

// variablesOf returns the variables that the configuration files which the block
// names refer to, as a shell would use them.
func variablesOf(files map[string]string, b block) (uses string) {
	for name, text := range files {
		if named(name, b.text) == nil {
			continue
		}
		for _, m := range inConfiguration.FindAllStringSubmatch(text, -1) {
			uses += " $" + m[1]
		}
	}
	return uses
}

// named returns where the text names a file or a function, nil for nowhere.
func named(name, text string) []int {
	return regexp.MustCompile(`(?m)(?:^|[^\w./-])` + regexp.QuoteMeta(name) + `(?:$|[^\w./=-])`).FindStringIndex(text)
}

// usesLost says what the text of a block uses, before it makes it itself, of
// what is lost.
func usesLost(text string, lost map[string]int) string {
	var uses []string
	for name, line := range lost {
		used := named(name, text)
		if variable := strings.HasPrefix(name, "$"); variable {
			used = regexp.MustCompile(`\$\{?` + name[1:] + `\b`).FindStringIndex(text)
		}
		if len(used) > 0 && !slices.Contains(makes(block{text: text[:used[0]]}), name) {
			uses = append(uses, fmt.Sprintf("%s is made at line %d, which is skipped", name, line))
		}
	}
	slices.Sort(uses)
	return strings.Join(uses, "; ")
}

// How blocks make variables, functions and files.
var (
	exports      = regexp.MustCompile(`(?m)^\s*export\s+(.*)`)
	exported     = regexp.MustCompile(`(?:^|\s)([A-Za-z_]\w*)=`)
	assigned     = regexp.MustCompile(`(?m)(?:^|[;{&]\s+|\b(?:until|while|if|do|then)\s+)[ \t]*([A-Za-z_]\w*)=(.*)`)
	forOneTime   = regexp.MustCompile(`^(?:[^\s'"$]*|'[^']*'|"[^"]*")[ \t]+[A-Za-z./]`) // the value of NAME=value command
	taken        = regexp.MustCompile(`\b(?:for|read(?: -r)?)\s+([A-Za-z_]\w*)`)
	functionMade = regexp.MustCompile(`(?m)^\s*([A-Za-z_]\w*)\(\)`)
	fileMade     = regexp.MustCompile(`(?:[^-=]>>?\s*|\s-[oD]\s+|\btee\s+)([A-Za-z][\w./-]*)`)
)

// makes returns what the block leaves for those below it: variables with a $
// before the name, functions and files. What runs beside them runs in a shell of its own.
func makes(b block) (names []string) {
	for _, m := range fileMade.FindAllStringSubmatch(b.text, -1) {
		names = append(names, m[1])
	}
	if b.is("server") || b.is("background") {
		return names
	}
	names = append(names, made([]block{b}, functionMade)...)
	for _, line := range exports.FindAllStringSubmatch(b.text, -1) {
		for _, m := range exported.FindAllStringSubmatch(line[1], -1) {
			names = append(names, "$"+m[1])
		}
	}
	for _, m := range assigned.FindAllStringSubmatch(b.text, -1) {
		if !forOneTime.MatchString(m[2]) {
			names = append(names, "$"+m[1])
		}
	}
	for _, m := range taken.FindAllStringSubmatch(b.text, -1) {
		names = append(names, "$"+m[1])
	}
	return names
}

func made(blocks []block, how *regexp.Regexp) (names []string) {
	for _, b := range blocks {
		for _, m := range how.FindAllStringSubmatch(b.text, -1) {
			names = append(names, m[1])
		}
	}
	return names
}

var (
	quoted  = regexp.MustCompile(`'[^']*'`)
	comment = regexp.MustCompile(`(?m)(^|\s)#.*`)
	command = regexp.MustCompile(`(?m)(?:^|[|;&({]|\b(?:until|while|if|do|then|else)\s)[ \t]*(?:[A-Z_]+=[^\s$]*\s+)*([a-z][\w.-]*)(?:[\s);|]|$)`)
)

// programsOf returns the words of the block that stand where a command does.
func programsOf(b block) (names []string) {
	text := comment.ReplaceAllString(quoted.ReplaceAllString(b.text, `''`), "")
	for _, m := range command.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// notInstalled asks the shell, with the environment env, which of the programs
// it does not know.
func notInstalled(ctx context.Context, env, programs []string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `for n in "$@"; do command -v "$n" >/dev/null || echo "$n"; done`, "sh"}, programs...)...)
	cmd.Env = env
	out, err := cmd.Output()
	return strings.Fields(string(out)), err
}

func TestABlockIsSkippedIfItNeedsWhatIsNotThere(t *testing.T) {
	const without = "```sh needs=node\n"
	for _, tt := range []struct {
		name, page string
		want       []string // a part of why each block is skipped, "" = it runs
	}{
		{"a variable of a skipped block", without + "export KEY=a OTHER=b\n```\n```sh\ncurl -d \"$OTHER\"\n```\n",
			[]string{noNode, "$OTHER is made at line 1"}},
		{"a variable of a block that needs PostgreSQL", "```sh needs=postgres\nexport ID=a\n```\n```sh\necho $ID\n```\n",
			[]string{noPostgres, "$ID is made"}},
		{"a variable that was taken from an answer", without + "id=$(curl x)\n```\n```sh\ncurl \"/${id}\"\n```\n", []string{noNode, "$id is made"}},
		{"a file of a skipped block", without + "curl -o answer.json x\n```\n```sh\ncat answer.json\n```\n", []string{noNode, "answer.json is made"}},
		{"a file with a longer name is another one", without + "curl x > a.json\n```\n```sh\ncat ba.json a.jsonl\n```\n", []string{noNode, ""}},
		{"a function of a skipped block", without + "ask() { curl x; }\n```\n```sh\nask > answer\n```\n", []string{noNode, "ask is made"}},
		{"what depends on a block that depends", without + "A=1\n```\n```sh\nB=$A\n```\n```sh\necho $B\n```\n", []string{noNode, "$A is", "$B is"}},
		{"a variable that the block sets itself", without + "export KEY=a\n```\n```sh\nexport KEY=b\necho $KEY\n```\n", []string{noNode, ""}},
		{"a variable that a block between them sets", without + "A=1\n```\n```sh\nA=2\n```\n```sh\necho $A\n```\n", []string{noNode, "", ""}},
		{"a variable for one command", without + "A=1\n```\n```sh\nA=2 true\n```\n```sh\necho $A\n```\n", []string{noNode, "", "$A is"}},
		{"a variable of a server", "```sh server needs=node\nexport A=1\n```\n```sh\necho $A\n```\n", []string{noNode, ""}},
		{"a variable of a block in the background", "```sh background needs=node\nexport A=1\n```\n```sh\necho $A\n```\n", []string{noNode, ""}},
		{"a program that is not installed", "```sh\nexport KEY=$(openssl rand)\n```\n```sh\necho $KEY\n```\n", []string{"not installed: openssl", "$KEY is"}},
		{"the packages, although nobody says so", "```sh\nPORT=1 npx -y server\n```\n", []string{noNode}},
		{"words that are no programs", "```sh\nawk '{ openssl }' # openssl\ncurl --openssl \"openssl\"\n```\n", []string{""}},
		{"a variable of the configuration", "```yaml file=a.yaml\nkey: env:KEY\n```\n" + without + "export KEY=a\n```\n```sh server\nserve a.yaml\n```\n```sh\nserve b.yaml\n```\n",
			[]string{"", noNode, "$KEY is", ""}},
		{"a file that the page itself has", without + "echo > a.json\n```\n```json file=a.json\n{}\n```\n```sh\ncat a.json\n```\n", []string{noNode, "", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := machine{missing: func(programs []string) []string {
				return slices.DeleteFunc(slices.Clone(programs), func(name string) bool { return name != "openssl" })
			}}
			got := skips(parseBlocks(t, "page", tt.page), m)
			if len(got) != len(tt.want) {
				t.Fatalf("%d blocks, want %d", len(got), len(tt.want))
			}
			for i, why := range got {
				if (why == "") != (tt.want[i] == "") || !strings.Contains(why, tt.want[i]) {
					t.Errorf("block %d: skipped because of %q, want %q", i, why, tt.want[i])
				}
			}
		})
	}
}
