# The loop of a Python session: it runs orders of standard input in one namespace.
def serve():
    import ast, io, json, linecache, os, sys, traceback, types

    if sys.platform == "wasi":
        import time

        orders = sys.stdin.buffer
        sys.stdin = io.TextIOWrapper(io.BytesIO())
        os.chdir("/work")

        def sleep(seconds):
            if seconds < 0:
                raise ValueError("sleep length must be non-negative")
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass

        time.sleep = sleep
    else:
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
    calls = 0

    def run(code, name):
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, name, "exec"), main.__dict__)
        if last is None:
            return ""
        value = eval(compile(last, name, "eval"), main.__dict__)
        return "" if value is None else repr(value)[:65536]

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
        code, mark = order["code"], order["mark"].encode()
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
        for stream in (sys.stdout, sys.stderr, out, err):
            try:
                stream.flush()
            except BaseException:
                pass
        write(1, mark)
        write(2, mark + json.dumps({"exit": exit, "result": result}).encode() + b"\n")


serve()
