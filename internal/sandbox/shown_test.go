package sandbox_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// show runs Python, and returns the images that it has shown, as "name: title", and what else is new of hidden files.
func show(t *testing.T, m *sandbox.Manager, code string, limit time.Duration) (images []string, o sandbox.Outcome) {
	t.Helper()
	r := python(code)
	r.Timeout = limit
	r.Collect = func(_ context.Context, dir *os.Root, shown []string) {
		for _, name := range shown {
			images = append(images, name+": "+title(t, dir, name))
		}
		if hidden := hiddenFiles(t, dir); len(hidden) > 0 {
			images = append(images, "left: "+strings.Join(hidden, " "))
		}
	}
	o = run(t, m, r)
	return images, o
}

// title returns the text in an image of sandboxtest.Matplotlib.
func title(t *testing.T, dir *os.Root, name string) string {
	f, err := dir.Open(name)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil || !strings.HasPrefix(string(data), "\x89PNG\r\n\x1a\n") {
		t.Errorf("%s is no PNG: %.20q, %v", name, data, err)
	}
	_, text, _ := strings.Cut(string(data), "tEXtTitle\x00")
	return text[:max(0, strings.Index(text, "IDAT")-8)]
}

// hiddenFiles returns what the gateway has left in the directory.
func hiddenFiles(t *testing.T, dir *os.Root) (names []string) {
	f, err := dir.Open(".")
	if err != nil {
		t.Error(err)
		return nil
	}
	defer f.Close()
	all, err := f.Readdirnames(-1)
	if err != nil {
		t.Error(err)
	}
	return slices.DeleteFunc(all, func(n string) bool { return !strings.HasPrefix(n, ".shown-") })
}

// Images that code shows are files of its working directory after the call, under names that are free. What cannot be drawn is told, and is no
// error of the code.
func TestImagesThatPythonShows(t *testing.T) {
	for _, driver := range pythons() {
		t.Run(driver, func(t *testing.T) {
			m := newManager(t, options(t, driver))
			tooMany := []string{}
			for n := range 10 {
				tooMany = append(tooMany, fmt.Sprintf("figure_%d.png: %d", n+9, n))
			}
			for _, c := range []struct {
				name, code string
				images     []string
				note       string
				exit       int
			}{
				{"the package", sandboxtest.Matplotlib, nil, "", 0},
				{"the backend", "assert plt.get_backend() == 'Agg'", nil, "", 0},
				{"shown", "plt.plot(1, 2); plt.show(); print(plt.get_fignums())", []string{"figure_1.png: 1 2"}, "", 0},
				{"it was closed", "plt.get_fignums()", nil, "", 0},
				{"shown and left open, from another directory", "import os\nos.mkdir('sub'); os.chdir('sub')\nplt.plot(1); plt.show(); plt.plot(2); plt.figure(); plt.plot(3)\nos.chdir('..')", []string{"figure_2.png: 1", "figure_3.png: 2", "figure_4.png: 3"}, "", 0},
				{"they were closed", "assert not plt.get_fignums()", nil, "", 0},
				{"of code that fails", "plt.plot(4)\n1/0", []string{"figure_5.png: 4"}, "", 1},
				{"of code that exits", "plt.plot(4)\nraise SystemExit(3)", []string{"figure_6.png: 4"}, "", 3},
				{"shown without being closed", "plt.plot(5); plt.show(block=False); plt.plot(6); fig = plt.figure(1)", []string{"figure_7.png: 5", "figure_8.png: 5 6"}, "", 0},
				{"too many", "for n in range(12):\n  plt.figure(); plt.plot(n)", tooMany, "a call shows at most 10 images", 0},
				{"a closed figure", "fig", []string{"figure_19.png: 5 6"}, "", 0},
				{"twice the same", "plt.plot(1); plt.show(); plt.plot(1); plt.show(); plt.plot(1)", []string{"figure_20.png: 1"}, "", 0},
				{"an empty figure", "plt.figure(); plt.show()", nil, "", 0},
				{"an image", "Picture('a')", []string{"figure_21.png: a"}, "", 0},
				{"displayed", "display(Picture('b'), 7, Picture('c'))", []string{"figure_22.png: b", "figure_23.png: c"}, "", 0},
				{"a name that the code has used", "open('figure_24.png', 'w').write('mine')\nPicture('d')", []string{"figure_25.png: d"}, "", 0},
				{"it is still the code's", "open('figure_24.png').read()", nil, "", 0},
				{"what cannot be drawn", "plt.plot(None); plt.show(); plt.plot(8)", []string{"figure_26.png: 8"}, "figure 1: TypeError: None is no number", 0},
				{"an error of an image", "class Bad:\n  def _repr_png_(self): raise ValueError('x' * 10000)\nBad()", nil, "Bad: ValueError: xxx", 0},
				{"an image that is none", "class Text:\n  def _repr_png_(self): return b'<html>'\nText()", nil, "Text: ValueError: it is no PNG", 0},
				{"an object with every attribute", "import unittest.mock\nunittest.mock.MagicMock()", nil, "", 0},
				{"a class", "Picture", nil, "", 0},
				{"a name of the code", "def display(x): return x\ndisplay(3)", nil, "", 0},
			} {
				images, o := show(t, m, c.code, 0)
				if !slices.Equal(images, c.images) || o.Exit != c.exit || o.Ended != "" || c.exit == 0 && o.Stderr != "" || !strings.HasPrefix(strings.Join(o.Notes, "\n"), c.note) || c.note == "" && len(o.Notes) > 0 {
					t.Errorf("%s: %q, %+v", c.name, images, o)
				}
			}
		})
	}
}

// What was shown before a session is lost is there, and a new session shows images as well.
func TestImagesOfASessionThatIsLost(t *testing.T) {
	for _, driver := range pythons() {
		t.Run(driver, func(t *testing.T) {
			m := newManager(t, options(t, driver))
			images, o := show(t, m, sandboxtest.Matplotlib+"plt.plot(1); plt.show()\nplt.plot(2)\nwhile True: pass", 3*time.Second)
			if !slices.Equal(images, []string{"figure_1.png: 1"}) || !strings.Contains(o.Ended, "time limit") {
				t.Errorf("%q, %+v", images, o)
			}
			images, o = show(t, m, sandboxtest.Matplotlib+"plt.plot(3)", 0)
			if !slices.Equal(images, []string{"figure_2.png: 3"}) || !o.StateLost {
				t.Errorf("%q, %+v", images, o)
			}
		})
	}
}

// Code that forges what the loop says of images gets no more than its own files.
func TestForgedImages(t *testing.T) {
	const begin = "import os\ndef of(f): return dict(zip(f.__code__.co_freevars, (c.cell_contents for c in f.__closure__)))\nloop = of(of(display)['show_image'])\nbegin = of(loop['keep'])['begin']\n"
	for _, driver := range pythons() {
		t.Run(driver, func(t *testing.T) {
			m := newManager(t, options(t, driver))
			images, o := show(t, m, sandboxtest.Matplotlib+begin+`
for n, make in enumerate([lambda p: os.symlink('/etc/passwd', p), os.mkdir, lambda p: os.link('/etc/passwd', p), lambda p: os.mkfifo(p)]):
  try: make('%s-%d.png' % (begin, n + 1))
  except (OSError, AttributeError): pass
open(begin + '.part', 'w').write('x')
for n in (0, 5, 11, 12): open('%s-%d.png' % (begin, n), 'wb').write(png(str(n)))
loop['note'].__closure__[loop['note'].__code__.co_freevars.index('notes')].cell_contents.extend(['y' * 100000] * 2)
`, 0)
			if len(images) != 2 || images[0] != "figure_1.png: 5" || strings.Count(images[1], "-0.png")+strings.Count(images[1], "-11.png")+strings.Count(images[1], "-12.png") != 3 || strings.Count(images[1], ".shown") != 3 {
				t.Errorf("%q", images)
			}
			if len(o.Notes) != 2 || len(o.Notes[0]) > 2100 || o.Ended != "" {
				t.Errorf("%.300v", o)
			}
		})
	}
}
