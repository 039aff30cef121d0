package child

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"modernc.org/quickjs"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// quickjsMemory bounds what JavaScript values take together.
const quickjsMemory = 64 << 20

//go:embed prelude.js
var prelude string

// quickJS is one JavaScript realm. It has the language and what the prelude adds: the files of its session, no network,
// no modules.
type quickJS struct {
	vm    *quickjs.VM
	files *files
	lost  *rejections
	hooks map[string]quickjs.Value // functions of the prelude
}

func newQuickJS() (interpreter, error) {
	vm, err := quickjs.NewVM()
	if err != nil {
		return nil, err
	}
	vm.SetMemoryLimit(quickjsMemory)
	files, err := openFiles()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(vm.RegisterHostFunc("__write", write), vm.RegisterHostFunc("__files", files.serve)); err != nil {
		return nil, err
	}
	hooks, err := vm.EvalValue(prelude, quickjs.EvalGlobal)
	if err != nil {
		return nil, fmt.Errorf("prelude: %w", err)
	}
	q := &quickJS{vm: vm, files: files, hooks: map[string]quickjs.Value{}}
	for _, name := range []string{"begin", "exit", "text", "next", "fire", "clear", "rejected", "room"} {
		atom, err := vm.NewAtom(name)
		if err != nil {
			return nil, err
		}
		if q.hooks[name], err = hooks.GetPropertyValue(atom); err != nil {
			return nil, err
		}
	}
	if q.lost, err = trackRejections(vm, q.hooks["rejected"]); err != nil {
		return nil, err
	}
	return q, nil
}

// write is the function that console.log and print call.
func write(args []any) (any, error) {
	if len(args) != 2 {
		return nil, errors.New("write takes a descriptor and a text")
	}
	out := io.Writer(os.Stdout)
	if number(args[0]) == 2 {
		out = os.Stderr
	}
	text, _ := args[1].(string)
	_, err := io.WriteString(out, text)
	return nil, err
}

// number returns a JavaScript number.
func number(v any) float64 {
	switch v := v.(type) {
	case int:
		return float64(v)
	case float64:
		return v
	}
	return math.NaN()
}

// evalAsync allows await outside of functions: the value is a promise of {value}.
const evalAsync = 1 << 7

// run implements interpreter. It returns when the code, its promise and its timers have ended.
func (q *quickJS) run(code string) sandbox.Reply {
	q.files.begin()
	promise, err := q.vm.EvalValue(code, quickjs.EvalGlobal|evalAsync)
	if err != nil {
		return failed(err)
	}
	_, err = q.hooks["begin"].Call(quickjs.UndefinedValue, promise)
	promise.Free()
	if err != nil {
		return failed(err)
	}
	if err := q.settle(); err != nil {
		_, _ = q.hook("clear")
		return failed(err)
	}
	exit, err := q.hook("exit")
	if err != nil {
		return failed(err)
	}
	value, err := q.hook("text")
	if err != nil {
		return failed(err)
	}
	text, _ := value.(string)
	switch number(exit) {
	case 0:
		return sandbox.Reply{Result: text}
	case -1:
		if _, err := q.hook("room"); err != nil {
			return failed(err) // there was no memory for what follows the promise
		}
		return failed(errors.New("the program waits for a promise that nothing settles"))
	}
	return failed(errors.New(text))
}

// settle runs promises and timers until there are no more.
func (q *quickJS) settle() error {
	for {
		if _, err := q.vm.ExecutePendingJobs(); err != nil {
			return err
		}
		wait, err := q.hook("next")
		if err != nil {
			return err
		}
		ms := number(wait)
		if !(ms >= 0) {
			return nil
		}
		time.Sleep(time.Duration(min(ms, 1e9) * float64(time.Millisecond)))
		if _, err := q.hook("fire"); err != nil {
			return err
		}
	}
}

func (q *quickJS) hook(name string) (any, error) {
	return q.hooks[name].Call(quickjs.UndefinedValue)
}

// failed writes an error to standard error, as other interpreters do. Without memory the session ends: its variables would keep it full.
func failed(err error) sandbox.Reply {
	const outOfMemory = "InternalError: out of memory"
	text := cmp.Or(err.Error(), outOfMemory) // then there is none for the text, either
	ended := ""
	if strings.HasPrefix(text, outOfMemory) {
		ended = fmt.Sprintf("the memory limit of %d MiB was reached", quickjsMemory>>20)
	}
	var e *quickjs.Error
	if errors.As(err, &e) && e.Stack != "" && !strings.Contains(text, e.Stack) {
		text += "\n" + e.Stack
	}
	fmt.Fprintln(os.Stderr, strings.TrimRight(text, "\n"))
	return sandbox.Reply{Exit: 1, Ended: ended}
}
