# The loop of a Python session: it runs orders of standard input in one namespace.
def serve():
    import ast, builtins, io, json, linecache, os, sys, traceback, types

    if sys.platform == "wasi":
        import time

        orders = sys.stdin.buffer
        sys.stdin = io.TextIOWrapper(io.BytesIO())
        os.chdir("/work")
        home = None

        def sleep(seconds):
            if seconds < 0:
                raise ValueError("sleep length must be non-negative")
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass

        time.sleep = sleep
    else:
        home = os.open(".", os.O_RDONLY)  # its path may lead through directories that this user may not enter
        orders = os.fdopen(os.dup(0), "rb")  # not inherited by programs that the code starts
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        if len(sys.argv) > 1:  # in a namespace of users, where it counts the processes of this session only
            import resource

            resource.setrlimit(resource.RLIMIT_NPROC, (int(sys.argv[1]),) * 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=False)
    out, err = sys.stdout, sys.stderr
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv = [""]
    if "" not in sys.path:
        sys.path.append("")  # modules in the working directory, after those of Python, which they must not replace
    calls = 0
    os.environ["MPLBACKEND"] = "Agg"  # matplotlib draws, and opens no windows

    # Images that the code shows: each becomes a file whose name begins as the order says.
    begin = ""
    shown = set()  # hashes of those of this call
    notes = []  # for the model
    most = 10  # of each
    enough = "a call shows at most %d images" % most

    def note(what, why=""):
        if isinstance(why, Exception):
            try:
                why = type(why).__name__ + ": " + str(why)
            except Exception:
                why = type(why).__name__
        text = str(what)[:200] + (": " + why if why else "")
        if text not in notes and len(notes) < most:
            notes.append(text[:300])

    def keep(png):
        png = bytes(png)
        if hash(png) in shown:
            return
        if not png.startswith(b"\x89PNG\r\n\x1a\n"):
            raise ValueError("it is no PNG")
        if len(shown) >= most:
            note(enough)
            return
        part, name = begin + ".part", "%s-%d.png" % (begin, len(shown) + 1)
        if home is None:
            part, name = "/work/" + part, "/work/" + name
        with open(part, "wb", opener=lambda path, flags: os.open(path, flags, 0o666, dir_fd=home)) as file:
            file.write(png)
        os.rename(part, name, src_dir_fd=home, dst_dir_fd=home)
        shown.add(hash(png))

    def keep_figure(figure):
        if hasattr(figure, "axes") and not any(getattr(figure, part, None) for part in ("axes", "lines", "texts", "images", "patches", "artists", "subfigs")):
            return  # it is empty
        data = io.BytesIO()
        figure.savefig(data, format="png")
        keep(data.getvalue())

    def show_figures(*args, block=None, **options):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if not hasattr(pyplot, "close"):  # it is not there, or only begun
            return
        try:
            numbers = pyplot.get_fignums()
            current = pyplot.gcf().number if numbers else None
            for n in numbers:
                try:
                    if len(shown) < most:
                        keep_figure(pyplot.figure(n))
                    else:
                        note(enough)
                except Exception as e:
                    note("figure %s" % n, e)
                if block is not False:
                    pyplot.close(n)
            if block is False and numbers:
                pyplot.figure(current)
        except Exception as e:
            note("matplotlib", e)

    def of(module, name, value):
        kind = getattr(sys.modules.get(module), name, None)
        return isinstance(kind, type) and isinstance(value, kind)

    def show_image(value):
        """Reports whether a value is an image."""
        try:
            if of("matplotlib.figure", "Figure", value):
                keep_figure(value)
                return True
            if of("PIL.Image", "Image", value) and value.mode in ("CMYK", "YCbCr", "HSV", "LAB", "F"):  # which PNG does not have
                value = value.convert("RGB")
            png = getattr(type(value), "_repr_png_", None)  # an object may pretend to have every method
            png = png(value) if callable(png) else None
            if isinstance(png, tuple):  # with its metadata
                png = png[0]
            if isinstance(png, str):
                import binascii

                png = binascii.a2b_base64(png)
            if not isinstance(png, (bytes, bytearray)):
                return False
            keep(png)
        except Exception as e:
            note(type(value).__name__, e)
        return True

    def show_picture(image, title=None, **options):
        if not show_image(image):
            note(type(image).__name__, "it cannot be a PNG")
        return True

    def display(*values, **options):
        for value in values:
            if not show_image(value):
                print(repr(value))

    builtins.display = display
    shows = {"matplotlib.pyplot": ("show", show_figures), "PIL.ImageShow": ("show", show_picture), "IPython.display": ("display", display)}

    class Finder:
        """Finds the modules that show images, and replaces the function that does it once they are loaded."""

        def find_spec(self, name, path=None, target=None):
            if name not in shows:
                return None
            for finder in sys.meta_path:
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find else None
                if spec is None:
                    continue
                load = getattr(spec.loader, "exec_module", None)

                def exec_module(module):
                    load(module)
                    setattr(module, *shows[name])

                if load and not isinstance(spec.loader, type):
                    try:
                        spec.loader.exec_module = exec_module
                    except AttributeError:
                        pass
                return spec

    sys.meta_path.insert(0, Finder())

    def run(code, name):
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, name, "exec"), main.__dict__)
        if last is None:
            return ""
        value = eval(compile(last, name, "eval"), main.__dict__)
        show_image(value)
        if value is None:
            return ""
        return repr(value)[:65550].encode("utf-8", "backslashreplace")[:65550].decode("utf-8", "ignore")  # the gateway cuts it, and says so

    def report(error):
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == "<string>":
            trace = trace.tb_next  # frames of this loop
        try:
            traceback.print_exception(type(error), error, trace, file=err)
        except BaseException:
            os.write(2, type(error).__name__.encode() + b"\n")

    def write(fd, data):
        while data:
            data = data[os.write(fd, data):]

    for line in orders:
        order = json.loads(line)
        code, mark, begin = order["code"], order["mark"].encode(), order["shown"]
        shown.clear()
        notes.clear()
        del order, line
        calls += 1
        name = "<call %d>" % calls
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        sys.stdout, sys.stderr = out, err
        exit, result = 0, ""
        try:
            result = run(code, name)
        except SystemExit as e:
            if e.code is None:
                exit = 0
            elif isinstance(e.code, int):
                exit = int(e.code) & 255
            else:
                exit = 1
                print(e.code, file=err)
        except BaseException as e:
            exit = 1
            report(e)
        try:
            show_figures()
        except BaseException as e:  # the code can make it anything
            note("matplotlib", type(e).__name__)
        for stream in (sys.stdout, sys.stderr, out, err):
            try:
                stream.flush()
            except BaseException:
                pass
        write(1, mark)
        reply = json.dumps({"exit": exit, "result": result, "notes": notes}, ensure_ascii=False)
        write(2, mark + reply.encode("utf-8", "backslashreplace") + b"\n")  # half a character is then an escape of JSON


serve()
