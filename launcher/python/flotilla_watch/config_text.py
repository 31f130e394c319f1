"""A run's config.textproto as one table, for trackers."""

import re

TOKEN = re.compile(r"""\s+|\#[^\n]*|(?P<word>[\w.+-]+)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>[{}:\[\],<>;])""")


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


def value_of(word):
    if word.startswith('"'):
        return re.sub(r"\\(.)", r"\1", word[1:-1])
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word
