"""The keys with which whoever submits opens storage, as `hora submit --storage-credentials` finds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

_AWS, _GOOGLE = "AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS"
# Of each provider what opens its storage, and what goes along with that.
_PROVIDERS = (
    (
        (_AWS,),
        ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HORA_S3_ENDPOINT"),
    ),
    (
        (_GOOGLE, "HORA_GCS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN"),
        ("GOOGLE_CLOUD_PROJECT", "HORA_GCS_ENDPOINT", "STORAGE_EMULATOR_HOST"),
    ),
    (
        ("HORA_ADLS_TOKEN", "AZURE_CLIENT_SECRET"),
        ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_AUTHORITY_HOST", "HORA_ADLS_ENDPOINT"),
    ),
)


def keys(environ: Mapping[str, str]) -> dict[str, str]:
    """What this environment opens storage with; of a provider without a key nothing, its region neither."""
    found: dict[str, str] = {}
    aws = _amazon(environ)
    if aws:
        found[_AWS] = aws
    if environ.get(_GOOGLE):
        try:
            found[_GOOGLE] = Path(environ[_GOOGLE]).read_text()
            json.loads(found[_GOOGLE])
        except (OSError, ValueError) as e:
            raise ValueError(
                f"read the key of Google's storage from {environ[_GOOGLE]}: {e}: set {_GOOGLE} to the file that is meant"
            ) from e
    for secret, plain in _PROVIDERS:
        found |= {n: environ[n] for n in secret if n not in (_AWS, _GOOGLE) and environ.get(n)}
        if any(n in found for n in secret):
            found |= {n: environ[n] for n in plain if environ.get(n)}
    if not found:
        raise ValueError(
            "there are no keys to storage here: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), "
            f"{_GOOGLE}, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
        )
    return found


def _amazon(environ: Mapping[str, str]) -> str:
    """The file that Amazon's tools read, with the keys of the variables or of the profile; "" without any."""
    names = {"aws_access_key_id": "", "aws_secret_access_key": "", "aws_session_token": ""}
    have = {n: environ.get(n.upper(), "") for n in names}
    if not have["aws_access_key_id"]:
        have = {**names, **_profile(environ)}
    if not have["aws_access_key_id"]:
        return ""
    lines = [f"{n} = {v}" for n, v in have.items() if v or n != "aws_session_token"]
    return "\n".join(["[default]", *lines, ""])


def _profile(environ: Mapping[str, str]) -> dict[str, str]:
    named, profile = environ.get(_AWS), environ.get("AWS_PROFILE")
    path = Path(named) if named else Path(environ.get("HOME", "")) / ".aws" / "credentials"
    try:
        rows = path.read_text().splitlines()
    except OSError as e:
        if not named and not profile:
            return {}
        raise ValueError(f"read keys from {path}: {e}: set {_AWS} to the file that is meant") from e
    found: dict[str, str] = {}
    section = ""
    for row in map(str.strip, rows):
        if row.startswith("["):
            section = row.strip("[]").strip()
        elif section == (profile or "default"):
            name, _, value = row.partition("=")
            if name.strip() in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"):
                found[name.strip()] = value.strip()
    if not found.get("aws_access_key_id") and (named or profile):
        raise ValueError(
            f"read keys from {path}: there are none for profile {profile or 'default'!r}: "
            "set AWS_PROFILE to one that is there"
        )
    return found
