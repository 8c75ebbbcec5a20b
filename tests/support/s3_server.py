"""An S3 endpoint, run in moto's own environment: `python s3_server.py PORT`.

S3 decides a conditional PUT at once. moto looks and then writes, so that of two that arrive together both can win:
here one PUT waits for the other.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


def main(port: int) -> None:
    """Answer requests until killed."""
    moto = DomainDispatcherApplication(create_backend_app)
    one_put = threading.Lock()

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT":
            return moto(environ, start_response)
        with one_put:
            return list(moto(environ, start_response))

    run_simple("127.0.0.1", port, answer, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
