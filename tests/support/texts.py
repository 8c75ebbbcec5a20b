"""Texts that steer a terminal, or mean something where they are shown."""

from __future__ import annotations

HOSTILE = ("[/]", "[red]x[/red]", "\x1b[2J\x1b[31m", "a\nb", "a|b", "=1+1", "\u202eabc", "\x9b31m", "\rover", "\ud800")
