"""A run's config.textproto as one table, for trackers."""

import re

TOKEN = re.compile(r"""\s+|\#[^\n]*|(?P<word>[\w.+-]+)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>[{}:\[\],<>;])""")
# Beyond ASCII our launcher writes octal numbers, of the bytes that UTF-8 has.
ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def flatten(text):
    """{"ppo.epochs": 4, ...}, of text format as our launcher writes it; what cannot
    be read ends it. Repeated fields become lists."""
    flat, path, field = {}, [], None
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            break
        at = found.end()
        if found["sign"] == "{":
            path.append(field or "")
            field = None
        elif found["sign"] == "}":
            if path:
                path.pop()
            field = None
        elif found["word"] or found["text"]:
            if field is None:
                field = found["word"]
                continue
            add(flat, ".".join([*path, field]), value_of(found[0]))
            if text[at:].lstrip()[:1] not in (",", "]"):
                field = None
        elif found["sign"] == "]":
            field = None
    return flat


def add(flat, name, value):
    if name not in flat:
        flat[name] = value
    elif isinstance(flat[name], list):
        flat[name].append(value)
    else:
        flat[name] = [flat[name], value]


def unescaped(found):
    said = found[1]
    return bytes([int(said, 8) & 255]) if said[:1] in b"01234567" else CONTROLS.get(said, said)


def value_of(word):
    if word.startswith('"'):
        return ESCAPE.sub(unescaped, word[1:-1].encode()).decode(errors="replace")
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word
