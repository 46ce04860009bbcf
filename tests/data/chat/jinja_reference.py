"""Jinja as Hugging Face sets it up for chat templates: the reference that the expected values come from."""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW_UNIX = 1753185600  # 2025-07-22 12:00 UTC: the same day in nearly every time zone


class GenerationTag(jinja2.ext.Extension):
    """{% generation %}: marks the assistant's words for training; renders as its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW_UNIX, datetime.timezone.utc).strftime(form)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, GenerationTag]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(env, source, **variables):
    """(text, None) or (None, what went wrong)."""
    try:
        text = env.from_string(source).render(**variables)
        text.encode("utf-8")
        return text, None
    except Exception as error:
        return None, "%s: %s" % (type(error).__name__, error)
