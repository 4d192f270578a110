"""Which request headers say who asks.

A hit never reaches the backend, so nobody there checks who is asking: whatever header may carry a credential, or the
name of the user that a gateway in front has already checked, must part the cache. There is no closed list of those,
so the name decides; a header too many costs hits, a header too few would show one caller another's answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["CallerHeaders"]

_SOUNDS_LIKE_ONE: Final = re.compile(
    rb"""(?<![a-z0-9])(?:
        # also glued to what stands before it: xapikey, idtoken, authtoken
        [a-z0-9]*(?:token|apikey|secret|credentials?|jwt|cookies?|passw(?:or)?d|passphrase|assertion|userid|username)
        | auth(?:n|z|orization|entication|enticated|uid|user)?
        | users? | userinfo | useremail | email | upn | login | principal | subject | identity
        | accounts? | account-?id | orgs? | org-?id | organi[sz]ations? | tenants? | tenant-?id
        | projects? | project-?id
        | sessions? | session-?id | consumer | customer | customer-?id | member | workspace | impersonate
        | oidc | saml | sso | iap | dpop | cert(?:ificate)? | client[-_]dn
        | (?:api|access|subscription|private|license|service|master|virtual|functions?)[-_]?keys?
        | groups? | roles? | claims?
    )(?![a-z0-9])""",
    re.VERBOSE,
)
# What sounds like one, and is not: the client's software, and names of single requests.
_HARMLESS: Final = re.compile(
    rb"(?:.*-)?user-agent|sec-.*|x-stainless-.*|access-control-.*|www-.*"
    rb"|.*(?:request|trace|correlation|transaction|span)[-_]?id"
)
_OWN: Final = b"x-antiphon-"
_KNOWN: Final = 4096  # names whose kind is remembered


class CallerHeaders:
    """The set of header names that say who asks; ``in`` costs one look into a dictionary for a name seen before."""

    def __init__(self, more: Iterable[str] = (), ignored: Iterable[str] = ()) -> None:
        self._more = frozenset(name.encode("latin-1") for name in more)
        self._ignored = frozenset(name.encode("latin-1") for name in ignored)
        self._known: dict[bytes, bool] = {}

    def __contains__(self, name: bytes) -> bool:
        """Whether a header says who asks; ``name`` in lower case."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _KNOWN:  # somebody makes names up
                self._known.clear()
            known = self._known[name] = self._sounds(name)
        return known

    def _sounds(self, name: bytes) -> bool:
        if name in self._ignored or name.startswith(_OWN):
            return False
        if name in self._more:
            return True
        return _SOUNDS_LIKE_ONE.search(name) is not None and _HARMLESS.fullmatch(name) is None
