"""HEALTHCHECK of the image: asks the process for `/healthz`, at the port that its configuration names."""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request
from http.client import HTTPException

from applier.config import settings


def main() -> str:
    """Why the process is not well; "" if it is, or if no `[http] port` lets it say so and Docker watches it alone."""
    path = os.environ.get("APPLIER_CONFIG", "/etc/applier/applier.toml")
    http = settings.load(path).http
    if http.port is None:
        return ""
    # The certificate has the name of the host for others; here it is this very container.
    trusting = ssl._create_unverified_context()  # noqa: S323, SLF001 - as said
    url = f"{'https' if http.certificate else 'http'}://127.0.0.1:{http.port}/healthz"
    try:
        urllib.request.urlopen(url, timeout=8, context=trusting).close()  # noqa: S310 - http or https, as above
    except urllib.error.HTTPError as error:
        return f"{url} answers {error.code}: {error.read(500).decode(errors='replace')}"
    except (OSError, HTTPException) as error:
        return f"{url} does not answer: {error}"
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
