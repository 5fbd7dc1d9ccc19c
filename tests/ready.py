"""`glassformer` as a process that forks from one which has imported everything: it starts in milliseconds instead of seconds.

`python ready.py SOCKET` waits for commands; `python ready.py SOCKET ARGUMENTS` sends one, with this process's standard streams,
folder and environment, and ends as it ends.
"""

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable


def wait(path: str) -> None:
    import sacrebleu  # noqa: F401
    import torch
    import torch._dynamo  # noqa: F401 (an optimiser imports it)

    import glassformer.training.loop
    import glassformer.training.run  # noqa: F401
    from glassformer import cli

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        while True:
            caller, _ = listening.accept()
            if os.fork() == 0:
                code = 1
                try:
                    code = answer(caller, cli.main)
                except BaseException:
                    traceback.print_exc()
                finally:
                    caller.send(bytes([code]))
                    os._exit(code)
            caller.close()


def answer(caller: socket.socket, main: Callable[[], None]) -> int:
    text, streams, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    asked = json.loads(text)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin, sys.stdout, sys.stderr = (open(n, m, encoding="utf-8", closefd=False) for n, m in enumerate("rww"))  # noqa: SIM115
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["glassformer", *asked["arguments"]]
    try:
        main()
        return 0
    except SystemExit as left:
        return int(left.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def send(path: str, arguments: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(path)
        asked = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        socket.send_fds(other, [json.dumps(asked).encode()], [0, 1, 2])
        return (other.recv(1) or b"\1")[0]


if __name__ == "__main__":
    if sys.argv[2:]:
        sys.exit(send(sys.argv[1], sys.argv[2:]))
    wait(sys.argv[1])
