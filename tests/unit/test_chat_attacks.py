"""Hostile chat templates: none may read, write, import, hang, or take memory; each ends in a TemplateError or harmless text."""
# ruff: noqa: E501  (templates read best on one line)

import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensormill.chat.sandbox import Program
from tensormill.errors import TemplateError

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
DOUBLE = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}"


def doubling(start: str, step: str, use: str = "") -> str:
    return DOUBLE.replace("START", start).replace("STEP", step) + use


ESCAPES = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "class by attr": "{{ ''|attr('__class__') }}|{{ (''|attr('__class__')).mro() }}",
    "class by map": "{{ ['']|map(attribute='__class__')|first }}{{ (['']|map(attribute='__class__')|first).mro() }}",
    "globals": "{{ raise_exception.__globals__['__builtins__']['open']('/etc/passwd').read() }}",
    "globals of strftime": "{{ strftime_now.__globals__.os.system('true') }}",
    "builtins of range": "{{ range.__self__.__import__('os') }}",
    "namespace init": "{{ namespace.__init__.__globals__.sys.modules }}",
    "cycler init": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "joiner init": "{{ joiner.__init__.__globals__.os.popen('id').read() }}",
    "lipsum": "{{ lipsum.__globals__.os.popen('id').read() }}",
    "self": "{{ self.__init__.__globals__.__builtins__ }}{{ self._TemplateReference__context.environment.budget }}",
    "format attribute": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format item": "{{ '{x.__class__.__init__.__globals__[os]}'.format(x=raise_exception) }}",
    "format_map": "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
    "format by attr": "{{ ('{0.__class__.__mro__}'|attr('format'))('') }}",
    "format by map": "{{ (['{0.__class__.__mro__}']|map(attribute='format')|first)('') }}",
    "format by item": "{{ '{0.__class__.__mro__}'['format']('') }}",
    "include": "{% include '/etc/passwd' %}",
    "include or not": "{% include '/etc/passwd' ignore missing %}",
    "import": "{% import 'os' as os %}{{ os.system('true') }}",
    "from import": "{% from 'os' import system %}",
    "extends": "{% extends '/etc/passwd' %}",
    "mutate": "{{ messages.append({'role': 'user'}) }}",
    "mutate dict": "{{ messages[0].update({'content': 'x'}) }}",
    "generator frame": "{{ (messages|map('upper')).gi_frame.f_globals }}",
    "macro code": "{% macro f() %}{% endmacro %}{{ f._func.__code__ }}{{ f.__init__.__globals__ }}",
    "undefined": "{{ nothing._undefined_message.__class__ }}{{ nothing.__init__.__globals__ }}",
    "loop": "{% for a in [1] %}{{ loop._iterator.__reduce__() }}{{ loop.__init__.__globals__ }}{% endfor %}",
    "environment": "{{ environment }}{{ context }}{{ environment.budget.steps(-10) }}",
    "guard by name": "{{ guard_turn(-1) }}",
    "encode": "{{ 'a'.encode('utf-8').__reduce_ex__(4) }}{{ 'a'.encode('zlib') }}",
    "translate": "{{ 'aaa'.translate({97: 'b' * 100}) }}",
    "fromkeys": "{{ dict.fromkeys(range(10)) }}",
    "to_bytes": "{{ (5).to_bytes(1000000000, 'big') }}",
    "autoescape": "{% autoescape true %}{{ 'x' }}{% endautoescape %}",
    "strftime": "{{ strftime_now('%1000000000d') }}",
}

HUNGRY = {
    "nested loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}x{% endfor %}{% endfor %}{% endfor %}",
    "filtered loops": "{% for a in range(100000) %}{% for b in range(100000) if false %}{% endfor %}{% endfor %}",
    "silent loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "huge range": "{% for a in range(10 ** 12) %}{% endfor %}",
    "much text": "{% for a in range(100000) %}" + "x" * 20000 + "{% endfor %}",
    "much set text": "{% set y %}{% for a in range(100000) %}" + "x" * 20000 + "{% endfor %}{% endset %}",
    "macro bomb": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(45) }}",
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "mutual macros": "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
    "call block": "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}",
    "block": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "recursive loop": "{% set l = [1] %}{% for a in l recursive %}{{ loop(l) }}{% endfor %}",
    "string times": "{{ 'x' * 10000000000 }}",
    "times string": "{{ 10000000000 * 'x' }}",
    "list times": "{{ [1] * 10000000000 }}",
    "nested times": "{{ ((([0] * 1000) * 1000) * 1000) }}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "power loop": doubling("7", "ns.x * ns.x"),
    "double concat": doubling("'xy'", "ns.x ~ ns.x"),
    "double plus": doubling("'xy'", "ns.x + ns.x"),
    "double list": doubling("[1]", "ns.x + ns.x"),
    "double join": doubling("'xy'", "[ns.x, ns.x]|join('')"),
    "double str.join": doubling("'xy'", "''.join([ns.x, ns.x])"),
    "double format": doubling("'xy'", "'%s%s'|format(ns.x, ns.x)"),
    "double percent": doubling("'xy'", "'%s%s' % (ns.x, ns.x)"),
    "double str.format": doubling("'xy'", "'{0}{0}'.format(ns.x)"),
    "double replace": doubling("'xy'", "ns.x|replace('x', 'xx')"),
    "double str.replace": doubling("'xy'", "ns.x.replace('', 'a')"),
    "laughs list": doubling("[]", "[ns.x, ns.x]", "{{ ns.x }}"),
    "laughs tuple": doubling("()", "(ns.x, ns.x)", "{{ ns.x == ns.x }}"),
    "laughs dict": doubling("{}", "{'a': ns.x, 'b': ns.x}", "{{ ns.x|tojson }}"),
    "laughs dict()": doubling("{}", "dict(a=ns.x, b=ns.x)", "{{ ns.x|string }}"),
    "laughs batch": doubling("[]", "[ns.x]|batch(2, ns.x)|list", "{{ ns.x }}"),
    "laughs batch first": doubling("[]", "[ns.x]|batch(2, ns.x)|first", "{{ ns.x }}"),
    "laughs slice": doubling("[]", "[ns.x]|slice(2, ns.x)|list", "{{ ns.x }}"),
    "laughs map": doubling("[]", "range(2)|map(attribute='no', default=ns.x)|list", "{{ ns.x }}"),
    "laughs map reverse": doubling("[]", "range(2)|map(attribute='no', default=ns.x)|reverse", "{{ ns.x }}"),
    "laughs varargs": "{% set ns = namespace(x=[]) %}{% macro f() %}{% set ns.x = varargs %}{% endmacro %}"
    "{% for i in range(60) %}{{ f(ns.x, ns.x) }}{% endfor %}{{ ns.x }}",
    "laughs cycler": doubling("[]", "cycler(ns.x, ns.x).items", "{{ ns.x }}"),
    "laughs namespace": "{% set a = namespace() %}{% set b = namespace() %}{% set a.x = [b, b] %}{% set b.x = [a, a] %}{{ a }}",
    "laughs compare": doubling("[]", "[ns.x, ns.x]", "{% set a = ns.x %}") + doubling("[]", "[ns.x, ns.x]", "{{ a == ns.x }}"),
    "cycle": "{% set a = namespace() %}{% set a.x = a %}{{ a }}{{ [a] }}",
    "center": "{{ 'x'.center(10000000000) }}",
    "center filter": "{{ 'x'|center(10000000000) }}",
    "center by map": "{{ ['x']|map('center', 10000000000)|list }}",
    "ljust": "{{ 'x'.ljust(10000000000) }}",
    "zfill": "{{ 'x'.zfill(10000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(10000000000) }}",
    "indent": "{{ 'a\nb'|indent(10000000000) }}",
    "indent text": "{{ ('a\n' * 100000)|indent('y' * 100000) }}",
    "wordwrap": "{{ ('a' * 1000000)|wordwrap(1) }}",
    "wrap string": "{{ ('a\\n' * 100000)|wordwrap(79, true, 'y' * 100000) }}",
    "spread": "{% set a = 'a' * 15000000 %}{{ range(*a) }}{{ dict(*a) }}",
    "spread filter": "{% set a = 'a' * 15000000 %}{{ 'x'|format(*a) }}",
    "long refusal": "{{ raise_exception('x' * 10000000) }}",
    "many ifs": "{% if a %}{% set b = 1 %}{% endif %}" * 6000 + "{{ 10 ** 9999 }}",
    "many macros": "".join(f"{{% macro m{i}() %}}{{{{ m{i - 1}() }}}}{{% endmacro %}}" for i in range(4000)) + "{{ m3999() }}",
    "many loops": "{% for a in [1] %}{% set b = a %}{% endfor %}" * 5000 + "{{ 10 ** 9999 }}",
    "many names": "".join(f"{{% set v{i} = {i} %}}" for i in range(10000)) + "{{ 10 ** 9999 }}",
    "names in ifs": "".join(f"{{% if a %}}{{% set v{i} = {i} %}}" for i in range(150)) + "{% endif %}" * 150 + "{{ 10 ** 9999 }}",
    "nested macros": "{% macro m() %}" * 150 + "{% endmacro %}" * 150 + "{{ 10 ** 9999 }}",
    "batch": "{{ [1]|batch(10000000000, 'x')|list }}",
    "slice": "{{ [1]|slice(10000000000)|list }}",
    "round": "{{ 1.5|round(1000000000, 'floor') }}",
    "percent width": "{{ '%10000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (10000000000, 1) }}",
    "percent precision": "{{ '%.10000000000f' % 1 }}",
    "percent star precision": "{{ '%.*f' % (10000000000, 1) }}",
    "percent key": "{{ '%(a)10000000000d' % {'a': 1} }}",
    "percent deep key": "{{ '%(a(b(c)))10000000000d' % {'a(b(c))': 1} }}",
    "percent many keys": "{{ ('%(a)s' * 100000) % {'a': 'x' * 1000000} }}",
    "format width": "{{ '{:10000000000}'.format(1) }}",
    "format inner width": "{{ '{:{w}}'.format(1, w=10000000000) }}",
    "format many": "{{ ('{0}' * 100000).format('x' * 1000000) }}",
    "json indent": "{{ [1]|tojson(indent=1000000000) }}",
    "json separators": "{{ [1, 2]|tojson(separators=('x' * 10000000, ':')) }}",
    "join separator": "{{ ('x' * 1000000)|join('y' * 1000000) }}",
    "str.join separator": "{{ ('y' * 1000000).join('x' * 1000000) }}",
    "rfind": "{% set a = 'a' * 4000000 %}{{ a.rfind('b' + 'a' * 2000000) }}",
    "rsplit": "{% set a = 'a' * 4000000 %}{{ a.rsplit('b' + 'a' * 2000000)|length }}",
    "strip": "{{ ('a' * 1000000).strip('b' * 1000000 + 'a')|length }}",
    "split": "{{ ('a,' * 4000000).split(',')|length }}{{ ('a ' * 4000000).split()|length }}",
    "list of text": "{{ ('a' * 8000000)|list|length }}",
    "sum of lists": "{{ ([[0] * 300] * 1000)|sum(start=[])|length }}",
    "sort big": "{% set a = [0] * 900 + [1] %}{% set b = [0] * 900 + [2] %}{{ ([a, b] * 100000)|sort|length }}",
    "in big": "{% set a = [0] * 50000 + [1] %}{{ a in [[0] * 50000 + [2]] * 100000 }}",
    "straight slices": "{% set a = [0] * 200000 %}" + "".join(f"{{% set v{i} = a[:] %}}" for i in range(5000)),
    "straight compares": "{% set a = [0] * 100000 + [1] %}{% set b = [0] * 100000 + [2] %}" + "{% if a == b %}{% endif %}" * 6000,
    "deep brackets": "{{ " + "(" * 50000 + "1" + ")" * 50000 + " }}",
    "deep lists": "{{ " + "[" * 50000 + "]" * 50000 + " }}",
    "deep loops": "{% for a in [1] %}" * 3000 + "{% endfor %}" * 3000,
    "long sum": "{{ 1" + " + 1" * 40000 + " }}",
    "long not": "{{ " + "not " * 50000 + "1 }}",
    "deep list built": "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "too long": " " * 300000,
    "spaces": "{{" + " " * 250000,
    "braces": "{ " * 125000,
    "tags": "{%" * 125000,
    "comment": "{#" * 125000,
    "raw": "{% raw %}" + "{% " * 80000,
    "quotes": "{{ '" + "\\" * 200001 + " }}",
    "changed": "{% for i in range(100000) %}{{ loop.changed(messages, messages) }}{{ loop.length }}{% for j in range(99999) %}{% endfor %}{% endfor %}",
}  # fmt: skip


def outcome(source: str) -> str:
    try:
        return Program(source).render({"messages": MESSAGES, "add_generation_prompt": True})
    except TemplateError as error:
        return f"refused: {error}"


@pytest.mark.parametrize("name", ESCAPES)
def test_escapes_reach_nothing(name: str) -> None:
    text = outcome(ESCAPES[name])
    told = text.removeprefix("refused: ")
    assert text.startswith("refused: ") or not told.strip("|{}"), text
    for leak in ("<class", "<module", "<function", "root:", "<frame", "<code", "uid=", "0x"):
        assert leak not in told


def test_messages_of_errors_stay_short() -> None:
    assert len(outcome(HUNGRY["long refusal"])) < 2100


def test_escapes_change_nothing() -> None:
    assert MESSAGES == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


RUNNER = """
import resource, sys, time
sys.path.insert(0, sys.argv[1])
import test_chat_attacks as attacks
def peak():  # MB; on Linux ru_maxrss remembers the size of the process that forked this one
    if sys.platform == "linux":
        return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) >> 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (20 if sys.platform == "darwin" else 10)
slow, used = [], []
for name, source in attacks.HUNGRY.items():
    start = time.process_time()
    text = attacks.outcome(source)
    seconds = time.process_time() - start
    if not text.startswith("refused: ") and name not in attacks.ENDS:
        print(name, "was not refused:", len(text), "characters", text[:60])
    if seconds > 6:
        print(name, "took", round(seconds, 1), "s")
    print("#", name, round(seconds, 2), peak(), text[:90].replace(chr(10), " "), file=sys.stderr)
    if peak() > 700:
        print(name, "took memory")
        break
"""
ENDS = {"braces", "laughs map reverse"}  # harmless text in the end


@pytest.mark.slow
def test_hungry_templates_are_stopped() -> None:
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (300, 300))

    here = __file__.rsplit("/", 1)[0]
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, here], capture_output=True, text=True, timeout=400, preexec_fn=limit, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "", done.stdout


PIECES = st.sampled_from(
    [
        "messages",
        "ns.x",
        "ns",
        "loop",
        "'x'",
        "1",
        "[1, ns.x]",
        "{'a': ns.x}",
        "(ns.x, 2)",
        "range(99)",
        "none",
        "10000000",
        "'%s'",
        "'{}'",
        "m",
        "f",
        "self",
        "f(ns.x)",
        "caller",
        "-1",
        "1.5",
        "''",
        "messages[0]",
        "namespace",
        "dict",
    ]
)
INFIX = st.sampled_from([" + ", " * ", " ** ", " ~ ", " % ", " == ", " in ", " < ", " // ", " and ", " is ", "|", ".", "-"])
SUFFIX = st.sampled_from(
    [
        "|list",
        "|join('ab')",
        "|tojson",
        "|batch(3,",
        "ns.x)",
        "|map('string')",
        "|string",
        "|length",
        "[::2]",
        "[0]",
        ".split('x')",
        ".items()",
        "|sort",
        "|indent(99)",
        "|format(ns.x)",
        ".format(ns.x)",
        "|sum",
        "|unique",
        "|groupby('role')",
        "|first",
        "|reverse",
        "(ns.x)",
        ".x",
        "|center(999)",
        "|replace('x','yy')",
        "|int",
    ]
)
EXPRESSION = st.recursive(
    PIECES,
    lambda inner: st.one_of(
        st.tuples(inner, INFIX, inner).map(lambda t: f"({t[0]}{t[1]}{t[2]})"),
        st.tuples(inner, SUFFIX).map("".join),
        st.tuples(inner, inner).map(lambda t: f"[{t[0]}, {t[1]}]"),
    ),
    max_leaves=6,
)
STATEMENT = st.recursive(
    st.one_of(EXPRESSION.map("{{{{ {} }}}}".format), EXPRESSION.map("{{% set ns.x = {} %}}".format)),
    lambda inner: st.one_of(
        st.tuples(EXPRESSION, inner).map(lambda t: f"{{% for m in {t[0]} %}}{t[1]}{{% endfor %}}"),
        st.tuples(EXPRESSION, inner).map(lambda t: f"{{% if {t[0]} %}}{t[1]}{{% endif %}}"),
        inner.map("{{% macro f(a) %}}{}{{% endmacro %}}".format),
        inner.map("{{% set y %}}{}{{% endset %}}".format),
        st.tuples(inner, inner).map("".join),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(STATEMENT)
def test_random_templates_end_in_text_or_refusal(body: str) -> None:
    start = time.process_time()
    outcome("{% set ns = namespace(x=[1]) %}" + body)
    assert time.process_time() - start < 6


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(alphabet="{}%#-+ \n'\"\\()[]|~.abfor_in1:,*", max_size=60))
def test_random_source_ends_in_text_or_refusal(source: str) -> None:
    outcome(source)
