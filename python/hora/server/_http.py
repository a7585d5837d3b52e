"""Requests to a server: urllib, JSON, sentences for errors."""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import IO, Any, TypeVar
from urllib.parse import urlencode, urlsplit

from ._types import ServerError

KEY = "Idempotency-Key"  # of a call that is made once, however often it is sent
T = TypeVar("T")
AGAIN = 15.0  # seconds in which a call whose answer was lost is sent again


class Unreachable(ServerError):
    """The server does not answer. `sent` says that it may have got what was asked: its connection broke before the
    answer was whole."""

    def __init__(self, text: str, sent: bool = False) -> None:
        super().__init__(text)
        self.sent = sent


def _plain(url: str, why: object) -> str:
    """Why a server is not reached, as the commands say it."""
    at = urlsplit(url)
    if isinstance(why, ConnectionRefusedError):
        return f"nothing listens at {at.hostname}:{at.port or (443 if at.scheme == 'https' else 80)}"
    if isinstance(why, socket.gaierror) and why.errno == socket.EAI_AGAIN:
        return f"the name {at.hostname} cannot be looked up just now"
    if isinstance(why, socket.gaierror):
        return f"there is no host {at.hostname}"
    if isinstance(why, TimeoutError):
        return "it does not answer in time"
    if isinstance(why, (ConnectionError, ssl.SSLEOFError, http.client.RemoteDisconnected, http.client.IncompleteRead)):
        return "it closed the connection before it had answered"
    if isinstance(why, ssl.SSLError):
        return "it speaks http, and no https" if why.reason in _NO_TLS else f"it does not agree on TLS ({why.reason})"
    return str(why)


_NO_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


def _unreached(url: str, why: object) -> str:
    next = "start it with hora up, or name another with HORA_SERVER"
    if isinstance(why, TimeoutError):
        next = "see whether it runs there, and whether something on the way drops what is sent"
    elif isinstance(why, ssl.SSLError) and not isinstance(why, ssl.SSLEOFError):
        next = "give its address as hora up prints it"
    return f"reach the server at {url}: {_plain(url, why)}: {next}"


_EXPIRED, _OTHER_NAME = (9, 10), (62, 64)  # OpenSSL's numbers: X509_V_ERR_CERT_NOT_YET_VALID and the like


def _distrusted(url: str, why: ssl.SSLCertVerificationError) -> str:
    """What to do about a certificate, as the commands say it."""
    if why.verify_code in _EXPIRED:
        is_, next = "has expired, or is not valid yet", "give the server another one with --tls-cert and --tls-key"
    elif why.verify_code in _OTHER_NAME:
        is_ = f"is not for {urlsplit(url).hostname}"
        next = "give the address with a name that the certificate has, or the server another certificate"
    else:
        is_ = "is signed by somebody whom this machine does not trust"
        next = (
            "give the whole address that hora up prints, with # and the fingerprint after it, as "
            f"hora login '{url}#...'; where the certificate is your own have this machine trust who signed it, with "
            "SSL_CERT_FILE for one"
        )
    return f"reach the server at {url}: its certificate {is_}: {next}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:  # a token goes nowhere else
        return None


class Http:
    """Calls of one server. Its address may end in # and the fingerprint of the server's own authority, which is then
    the only one that is trusted."""

    def __init__(self, url: str, token: str, timeout: float) -> None:
        self.url, _, pin = url.partition("#")
        self.url, self._pin = self.url.rstrip("/"), pin.lower()
        self._token, self.timeout = token, timeout
        self._opener = None if self._pin else self._opening(None)

    def _opening(self, trust: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if trust is not None:
            handlers.append(urllib.request.HTTPSHandler(context=trust))
        if (urlsplit(self.url).hostname or "") in ("127.0.0.1", "::1", "localhost"):
            handlers.append(urllib.request.ProxyHandler({}))
        return urllib.request.build_opener(*handlers)

    def _trusting(self) -> urllib.request.OpenerDirector:
        """Asks for the authority's certificate, without a token and trusting nobody, and trusts it where it is the
        pinned one."""
        if self._opener is not None:
            return self._opener
        anybody = ssl.create_default_context()
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        with self._opening(anybody).open(self.url + "/api/v1/authority", timeout=self.timeout) as answer:
            pem = answer.read(1 << 16).decode("ascii", "replace")
        try:
            is_pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
        except ValueError:
            is_pin = "nothing that is one"
        if is_pin != self._pin:
            raise ServerError(
                f"the server's authority has the fingerprint {is_pin} and not the pinned {self._pin}: somebody stands between, or it "
                "was made anew: compare with what hora up prints there, and log in again"
            )
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.check_hostname = False  # the authority vouches for this server and for nothing else
        trust.minimum_version = ssl.TLSVersion.TLSv1_3
        trust.load_verify_locations(cadata=pem)
        self._opener = self._opening(trust)
        return self._opener

    def open(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: bytes | IO[bytes] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> http.client.HTTPResponse:
        target = self.url + "/api/v1" + path + ("?" + urlencode(query, doseq=True) if query else "")
        request = urllib.request.Request(target, data=body, method=method)
        request.add_header("Authorization", "Bearer " + self._token)
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            return self._trusting().open(request, timeout=timeout or self.timeout)  # type: ignore[no-any-return]
        except urllib.error.HTTPError as e:
            raise self._refused(e) from None
        except (OSError, http.client.HTTPException) as e:
            why = getattr(e, "reason", e)
            if isinstance(why, ssl.SSLCertVerificationError):
                raise ServerError(_distrusted(self.url, why)) from None
            broken = isinstance(why, (ConnectionResetError, BrokenPipeError, http.client.HTTPException))
            raise Unreachable(_unreached(self.url, why), broken) from None

    def _refused(self, e: urllib.error.HTTPError) -> ServerError:
        detail, text = None, b""
        try:
            text = e.read(1 << 20)
            detail = json.loads(text).get("detail")
        except (ValueError, OSError, AttributeError, http.client.HTTPException):
            pass
        if not detail and b"HTTP request to an HTTPS server" in text:
            detail = (
                f"the server at {self.url} speaks https: give the whole address that hora up prints, which begins with "
                "https:// and may end in # and a fingerprint"
            )
        return ServerError(detail or f"{self.url} answers {e.code}: see whether that is a server of hora", e.code)

    def call(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Sends JSON and reads JSON. What changes something has a key, and is sent again where its answer was lost:
        with the key it is the same call however often it arrives."""
        headers = dict(headers or {})
        if method == "GET":
            return self._once(method, path, query, body, headers)
        headers.setdefault(KEY, secrets.token_hex(16))
        return self.again(lambda: self._once(method, path, query, body, headers))

    def again(self, once: Callable[[], T]) -> T:
        """Makes a call that is the same however often it arrives, and makes it again where its answer was lost."""
        begin, sent = time.monotonic(), False
        while True:
            try:
                return once()
            except ServerError as e:
                sent = sent or e.status == 503 or isinstance(e, Unreachable) and e.sent
                if not sent or e.status not in (0, 503) or time.monotonic() - begin > AGAIN:
                    raise
            time.sleep(0.1)

    def _once(self, method: str, path: str, query: dict[str, Any] | None, body: Any, headers: dict[str, str]) -> Any:
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        with self.open(method, path, query, data, headers) as answer:
            try:
                text = answer.read()
            except (OSError, http.client.HTTPException) as e:
                raise Unreachable(f"read the answer of {self.url}: {_plain(self.url, e)}: call again", True) from None
        if not text:
            return None
        try:
            return json.loads(text)
        except ValueError as e:
            raise ServerError(f"read the answer of {self.url}: {e}: see whether that is a server of hora") from None
