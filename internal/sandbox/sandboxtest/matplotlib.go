package sandboxtest

// Matplotlib is Python that makes a small package matplotlib, for tests on machines without the real one: files of the working directory, or
// modules in memory where Python may not enter the directories above it. It has the part of the real interface that shows figures: its
// figures hold numbers, of which None cannot be drawn. png and Picture make images.
const Matplotlib = `import importlib.util, os, sys
os.makedirs('matplotlib', exist_ok=True)
sources = {}
def write(name, text):
    sources['matplotlib' if name == '__init__.py' else 'matplotlib.' + name[:-3]] = text
    with open('matplotlib/' + name, 'w') as f:
        f.write(text)
class InMemory:
    def find_spec(self, name, path=None, target=None):
        if name in sources:
            return importlib.util.spec_from_loader(name, Source(), is_package=name == 'matplotlib')
class Source:
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(sources[module.__name__], module.__dict__)
write('__init__.py', '')
write('figure.py', '''
import struct, zlib
def png(text):
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    return (b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 2, 0, 0, 0)) + chunk(b'tEXt', b'Title\\0' + text.encode()) +
        chunk(b'IDAT', zlib.compress(b'\\0\\xff\\0\\0')) + chunk(b'IEND', b''))
class Figure:
    def __init__(self):
        self.axes = []
    def plot(self, *numbers):
        self.axes += numbers
    def savefig(self, to, format=None):
        if None in self.axes:
            raise TypeError('None is no number')
        data = png(' '.join(map(str, self.axes)))
        if hasattr(to, 'write'):
            to.write(data)
        else:
            with open(to, 'wb') as f:
                f.write(data)
''')
write('pyplot.py', '''
import os
from matplotlib.figure import Figure
figures, current = {}, None
def get_backend():
    return os.environ.get('MPLBACKEND')
def get_fignums():
    return sorted(figures)
def figure(num=None):
    global current
    if num is None:
        num = max(figures, default=0) + 1
    if num not in figures:
        figures[num] = Figure()
        figures[num].number = num
    current = figures[num]
    return current
def gcf():
    return current or figure()
def plot(*numbers):
    gcf().plot(*numbers)
def savefig(to, **options):
    gcf().savefig(to, **options)
def close(num):
    global current
    closed = figures.pop(num, None)
    if current is closed:
        current = figures[max(figures)] if figures else None
def show(*args, **options):
    raise RuntimeError('FigureCanvasAgg is non-interactive, and thus cannot be shown')
''')
sys.path.insert(0, '.')
sys.meta_path.append(InMemory())
from matplotlib.figure import png
class Picture:
    def __init__(self, text):
        self.text = text
    def _repr_png_(self):
        return png(self.text)
import matplotlib.pyplot as plt
`
