"""The options of an S3 store: from `storage_options`, the environment and profiles, or an s3fs file system.

No `repr` shows credentials. If the options have none, botocore looks for them: environment variables, profiles, roles.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fsspeckit.core.errors import ArgumentError, StorageError

_SPELLINGS = {
    "endpoint": ("endpoint_url", "aws_endpoint", "aws_endpoint_url", "endpoint_override"),
    "region": ("region_name", "aws_region", "aws_default_region"),
    "access_key_id": ("key", "access_key", "aws_access_key_id"),
    "secret_access_key": ("secret", "secret_key", "aws_secret_access_key"),
    "session_token": ("token", "aws_session_token"),
    "profile": ("aws_profile",),
    "allow_http": ("aws_allow_http",),
    "anonymous": ("anon", "skip_signature", "aws_skip_signature"),
    "virtual_hosted": ("virtual_hosted_style_request", "aws_virtual_hosted_style_request"),
    "lease": (),
    "heartbeat": (),
    "timeout": (),
}
_NAMES = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in (name, *spellings)}
_SECONDS = {"lease": "FSSPECKIT_LEASE", "heartbeat": "FSSPECKIT_HEARTBEAT", "timeout": "FSSPECKIT_TIMEOUT"}
_SWITCHES = ("allow_http", "anonymous", "virtual_hosted")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, repr=False)
class S3Options:
    """Parsed `storage_options`. In seconds: a writer's `lease`, its `heartbeat`, the `timeout` of a request."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    profile: str | None = None
    allow_http: bool = False
    anonymous: bool = False
    virtual_hosted: bool = False
    lease: float = 20
    heartbeat: float = 5
    timeout: float = 60

    def __repr__(self) -> str:
        return f"S3Options(endpoint={self.endpoint!r}, region={self.region!r})"

    def __post_init__(self) -> None:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ArgumentError("storage_options need access_key_id and secret_access_key together, or neither.")
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise ArgumentError("The storage option endpoint is not a URL. Write https://host or http://host:port.")
        if self.endpoint is not None and "@" in self.endpoint:
            raise ArgumentError("Credentials do not belong in the endpoint; they are storage options of their own.")
        if self.endpoint is not None and self.endpoint.startswith("http://") and not self.allow_http:
            raise ArgumentError(
                f"The endpoint {self.endpoint} is not encrypted. If that is intended, give allow_http=true as storage "
                "option, or set AWS_ALLOW_HTTP=true."
            )
        if not 0 < self.heartbeat < self.lease:
            raise ArgumentError(f"heartbeat ({self.heartbeat:g} s) must be shorter than lease ({self.lease:g} s).")

    @classmethod
    def of(cls, storage_options: Mapping[str, Any] | None) -> S3Options:
        """From `storage_options`; the environment has defaults."""
        chosen: dict[str, Any] = {}
        for spelling, value in (storage_options or {}).items():
            name = _NAMES.get(str(spelling).lower())
            if name is None:
                known = ", ".join(f.name for f in fields(cls))
                raise ArgumentError(f"Unknown storage option {spelling!r} for s3://. Known are {known}.")
            if value is not None:
                chosen[name] = _value(name, value)
        return cls(**{**_from_environment(chosen), **chosen})

    @classmethod
    def of_s3fs(cls, filesystem: Any) -> S3Options:
        """The options of an s3fs file system."""
        client, config = filesystem.client_kwargs or {}, filesystem.config_kwargs or {}
        endpoint = getattr(filesystem, "endpoint_url", None) or client.get("endpoint_url")
        options = {
            "endpoint": endpoint,
            "region": client.get("region_name"),
            "access_key_id": filesystem.key or client.get("aws_access_key_id"),
            "secret_access_key": filesystem.secret or client.get("aws_secret_access_key"),
            "session_token": filesystem.token or client.get("aws_session_token"),
            "profile": filesystem.kwargs.get("profile") or filesystem.storage_options.get("profile"),
            "allow_http": True if (endpoint or "").startswith("http://") else None,
            "anonymous": bool(filesystem.anon),
            "virtual_hosted": (config.get("s3") or {}).get("addressing_style") == "virtual",
        }
        return cls.of(options)

    @property
    def secrets(self) -> list[str]:
        """Messages must not contain these."""
        return secrets_of(self.secret_access_key, self.session_token, self.access_key_id)


def _value(name: str, value: Any) -> Any:
    if name in _SWITCHES:
        word = str(value).lower()
        if word not in _BOOLEANS:
            raise ArgumentError(f"The storage option {name} is true or false.")
        return _BOOLEANS[word]
    if name in _SECONDS:
        return _seconds(f"The storage option {name}", value)
    return str(value)


def _seconds(what: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise ArgumentError(f"{what} must be a number of seconds, up to an hour.")
    return seconds


def _from_environment(chosen: Mapping[str, Any]) -> dict[str, Any]:
    environment = os.environ
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    defaults: dict[str, Any] = {
        "endpoint": endpoint or None,
        "region": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or None,
    }
    if environment.get("AWS_ALLOW_HTTP"):
        defaults["allow_http"] = _value("allow_http", environment["AWS_ALLOW_HTTP"])
    for name, variable in _SECONDS.items():
        if environment.get(variable):
            defaults[name] = _seconds(variable, environment[variable])
    if "lease" in {**defaults, **chosen} and "heartbeat" not in {**defaults, **chosen}:
        defaults["heartbeat"] = {**defaults, **chosen}["lease"] / 4
    return defaults


def secrets_of(*words: str | None) -> list[str]:
    """The words that are long enough to be secrets. Shorter ones occur within other words."""
    return [word for word in words if word and len(word) > 5]


def without_secrets(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def missing_client(url: str, error: ImportError) -> ArgumentError:
    return ArgumentError(
        f"Cannot reach {url}: {error.name or 'the client'} is not installed. Install the extra s3 from a "
        "checkout of fsspeckit: pip install '.[s3]'."
    )


def no_credentials(place: str) -> StorageError:
    return StorageError(
        f"No credentials for {place}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give "
        "storage_options (access_key_id, secret_access_key; anonymous=true for a public bucket). Nothing was started.",
        operation="connect",
    )
