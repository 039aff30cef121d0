# Runs commands of the tool shell with /bin/sh, in a session of Python: it prints what became of each as JSON.
def commands(asked):
    import json, os, signal, subprocess, threading, time

    end = time.monotonic() + asked["seconds"]
    most = asked["bytes"]
    left = [asked["together"]]
    lock = threading.Lock()

    def keep(stream, kept):
        while True:
            piece = stream.read1(65536)
            if not piece:
                return
            with lock:
                room = max(0, min(most - len(kept["data"]), left[0]))
                kept["data"] += piece[:room]
                kept["dropped"] += len(piece) - len(piece[:room])
                left[0] -= len(piece[:room])

    def run(command):
        p = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        outputs = [{"data": b"", "dropped": 0} for _ in range(2)]
        readers = [threading.Thread(target=keep, args=pair, daemon=True) for pair in zip((p.stdout, p.stderr), outputs)]
        for r in readers:
            r.start()
        timed_out = False
        try:
            p.wait(max(0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            timed_out = True
        try:  # what the command has started ends with it
            os.killpg(p.pid, signal.SIGKILL)
        except OSError:
            pass
        p.wait()
        for r in readers:
            r.join(1)
        told = {"timed_out": timed_out, "exit_code": p.returncode}
        for name, kept in zip(("stdout", "stderr"), outputs):
            told[name] = kept["data"].decode("utf-8", "replace")
            told[name + "_dropped"] = kept["dropped"]
        return told

    done = []
    for command in asked["commands"]:
        done.append(run(command))
        if done[-1]["timed_out"]:
            break
    return json.dumps(done, ensure_ascii=False)
