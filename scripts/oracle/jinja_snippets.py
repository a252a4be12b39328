#!/usr/bin/env python3
"""Renders small templates in the Jinja environment of Hugging Face's transformers.

    jinja_snippets.py OUT.json

OUT.json receives each snippet with the text it gives, or null where rendering fails. The snippets cover the language as
chat templates use it: one feature each, with the corners where Python and a guess would differ.
"""

import datetime
import json
import sys

from transformers.utils import chat_template_utils

VARIABLES = {
    "text": "  Hello, W\u00f6rld!  ",
    "words": "the quick\tbrown\n fox",
    "html": "<b>\"a\" & 'b'</b>",
    "items": [3, 1, 2],
    "people": [{"name": "ann", "age": 30, "tags": ["x"]}, {"name": "Bob", "age": 25, "tags": []}, {"name": "cy", "tags": ["y", "z"]}],
    "mapping": {"b": 1, "a": [1.5, None, True], "C": {"k": "v"}},
    "none": None,
    "yes": True,
    "number": 42,
    "fraction": 2.5,
    "big": 123456789012345678901234567890.0,
    "empty": "",
    "lines": "one\ntwo\r\n\nthree",
    "path": "a/b/c.txt",
}

SNIPPETS = """
{{ text }}|{{ none }}|{{ yes }}|{{ number }}|{{ fraction }}|{{ big }}|{{ missing }}
{{ items }}{{ mapping }}{{ people[0] }}{{ (1,) }}{{ (1, 'a') }}{{ () }}{{ [] }}{{ {} }}
{{ ['it\\'s', "q\\"", 'both\\'\\"', '\\n\\t\\\\', '\u00e9\u200b\U0001f600'] }}
{{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 3.0 }} {{ -0.0 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1 + true }} {{ 'a' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 + [3] }} {{ 'x' * -1 }}|
{{ 'a' ~ 1 ~ none ~ true ~ missing ~ [1, 'b'] }}
{{ 'a' + 1 }}
{{ missing + 'a' }}
{{ 'a' + missing }}
{{ none + 'a' }}
{{ 1 / 0 }}
{{ missing.attribute }}
{{ missing['item'] }}
{{ none.attribute }}|{{ none['item'] is defined }}|{{ number.x is defined }}
{{ missing() }}
{{ items[0] }}{{ items[-1] }}{{ items[9] }}{{ items['a'] }}{{ text[2] }}{{ text[-3] }}{{ mapping['b'] }}{{ mapping.b }}{{ mapping.zzz }}
{{ items[1:] }}{{ items[:-1] }}{{ items[::-1] }}{{ items[::2] }}{{ text[2:7] }}{{ text[::-1] }}{{ text[5:2] }}|{{ items[-9:9] }}{{ text[-8:-3] }}{{ items[2:0:-1] }}
{{ missing[1:] }}
{{ mapping[1:] is defined }}
{{ 'items' in mapping }} {{ mapping.items() | list }} {{ mapping.keys() | list }} {{ mapping.values() | list }} {{ mapping.items is defined }}
{{ mapping.get('b') }} {{ mapping.get('x') }} {{ mapping.get('x', 5) }}
{{ mapping.get() }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' == 'a' }} {{ [1, 2] == [1, 2] }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ none == false }} {{ missing == missing2 }} {{ missing == none }} {{ '1' == 1 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 2 >= 2.0 }} {{ 'B' < 'a' }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ missing < 1 }}
{{ 'a' in 'cat' }} {{ 1 in items }} {{ 'b' in mapping }} {{ 'z' not in 'cat' }} {{ 2 in (1, 2) }} {{ '' in '' }} {{ 1 in missing }} {{ missing in items }} {{ 'a' in mapping.keys() }}
{{ 1 in 'abc' }}
{{ 1 in none }}
{{ missing in 'abc' }}
{{ not missing }} {{ not items }} {{ not '' }} {{ not 0 }} {{ missing or 'x' }} {{ '' or none }} {{ 1 and 0 }} {{ 'a' and 'b' }} {{ none and missing }}|
{{ 'yes' if number > 40 else 'no' }} {{ 'yes' if missing }}| {{ ('a' if no else 'b') ~ 'c' }} {{ 1 if false else 2 if false else 3 }}
{{ number is defined }} {{ missing is defined }} {{ missing is undefined }} {{ none is none }} {{ text is string }} {{ items is sequence }} {{ mapping is mapping }} {{ items is iterable }} {{ text is iterable }} {{ number is iterable }} {{ mapping is sequence }} {{ missing is iterable }} {{ missing is sequence }}
{{ number is number }} {{ yes is number }} {{ yes is integer }} {{ number is integer }} {{ fraction is float }} {{ yes is boolean }} {{ yes is true }} {{ 1 is true }} {{ false is false }} {{ number is even }} {{ number is odd }} {{ number is divisibleby 7 }} {{ number is divisibleby(5) }}
{{ 'a' is eq 'a' }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is gt(1) }} {{ 'a' is in 'abc' }} {{ 'a' is not in ['b'] }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ none is sameas none }} {{ range is callable }} {{ 'x' is callable }} {{ number is not none }}
{{ mapping.items() is mapping }} {{ mapping.items() is iterable }} {{ mapping.items() is sequence }} {{ range(3) is sequence }} {{ (items | map('string')) is iterable }} {{ (items | map('string')) is sequence }}
{{ text | trim }}|{{ text | upper }}|{{ text | lower }}|{{ 'hello world-foo (bar)' | title }}|{{ 'hELLO wORLD' | capitalize }}|{{ none | trim }}|{{ missing | trim }}|{{ 'xxaxx' | trim('x') }}
{{ text | length }} {{ items | count }} {{ mapping | length }} {{ missing | length }} {{ mapping.items() | length }} {{ range(5) | length }}
{{ number | length }}
{{ (items | map('string')) | length }}
{{ missing | default('d') }} {{ none | default('d') }} {{ '' | default('d', true) }} {{ none | default('d', boolean=true) }} {{ 0 | d(5, true) }} {{ missing | default }}|
{{ items | join(', ') }} {{ items | join }} {{ people | join('; ', attribute='name') }} {{ [1, none, 'a', missing, 2.0] | join('-') }} {{ mapping | join(',') }} {{ 'abc' | join('.') }}
{{ items | first }} {{ items | last }} {{ [] | first }} {{ 'abc' | first }} {{ 'abc' | last }} {{ [] | last is defined }} {{ (items | map('string')) | first }}
{{ (items | map('string')) | last }}
{{ items | sort }} {{ items | sort(reverse=true) }} {{ ['b', 'A', 'c', 'B'] | sort }} {{ ['b', 'A', 'c'] | sort(case_sensitive=true) }} {{ people | sort(attribute='name') | map(attribute='name') | list }}
{{ [1, 'a'] | sort }}
{{ items | min }} {{ items | max }} {{ ['b', 'A'] | min }} {{ people[:2] | max(attribute='age') }} {{ [] | min is defined }} {{ items | sum }} {{ people[:2] | sum(attribute='age') }} {{ items | sum(start=10) }}
{{ items | reverse | list }} {{ 'abc' | reverse }} {{ [1, 1.0, true, 'a', 'A', 'b'] | unique | list }} {{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 'x') | list }} {{ [1, 2, 3, 4, 5] | slice(3) | list }} {{ [1, 2, 3, 4] | slice(3, 'x') | list }}
{{ mapping | dictsort }} {{ mapping | dictsort(true) }} {{ {'a': 2, 'b': 1} | dictsort(by='value') }} {{ mapping | dictsort(reverse=true) }} {{ {'z': 1} | items | list }}
{{ people | map(attribute='age') | list }} {{ people | map(attribute='age', default=0) | list }} {{ people | map(attribute='tags.0') | list }} {{ ['a', 'b'] | map('upper') | list }} {{ [1.55, 2.45] | map('round', 1) | list }} {{ none | map('upper') | list }}
{{ people | selectattr('age') | map(attribute='name') | list }} {{ people | selectattr('age', 'defined') | list | length }} {{ people[:2] | rejectattr('age', 'gt', 26) | map(attribute='name') | list }}
{{ people | selectattr('name', 'equalto', 'cy') | list }} {{ items | select('odd') | list }} {{ items | reject('odd') | list }} {{ [0, 1, '', 'a', none] | select | list }} {{ missing | select('odd') | list }} {{ none | selectattr('x') | list }}
{% set g = items | map('string') %}{{ g | list }}{{ g | list }}
{{ people | rejectattr('age', 'gt', 26) | list }}
{{ people | groupby('age', default=0) | map(attribute=0) | list }}
{{ mapping | tojson }} {{ people | tojson }} {{ html | tojson }} {{ [1.0, 1e20, 1e-7, -0.0, true, none, 'a'] | tojson }}
{{ mapping | tojson(indent=2) }} {{ {'a': [], 'b': {}, 'c': [1, {'d': 2}]} | tojson(indent=4) }} {{ [1, 2] | tojson(indent=0) }} {{ {'a': 1} | tojson(indent='\\t') }}
{{ mapping | tojson(sort_keys=true) }} {{ mapping | tojson(separators=(',', ':')) }} {{ mapping | tojson(indent=1, separators=(', ', ' = ')) }} {{ '\u00e9\U0001f600\x7f' | tojson(ensure_ascii=true) }} {{ '\u00e9\U0001f600\x7f' | tojson }}
{{ 'a\\x00\\x1f\\b\\f\\n\\r\\t\\\\"/' | tojson }} {{ '\u2028\u2029' | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }} {{ (1, 2) | tojson }}
{{ missing | tojson }}
{{ mapping.items() | tojson }}
{{ items | map('string') | tojson }}
{{ {(1, 2): 3} | tojson }}
{{ range(3) | tojson }}
{{ items | string }} {{ 5 | string | length }} {{ mapping | string }} {{ 'a' | list }} {{ mapping | list }} {{ none | string }} {{ missing | string }}|
{{ '42' | int }} {{ '4.7' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 4.9 | int }} {{ 'ff' | int(base=16) }} {{ none | int }} {{ ' 12 ' | int }} {{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ true | int }} {{ '1e3' | float }} {{ '-5' | int }}
{{ 42.55 | round }} {{ 42.55 | round(1) }} {{ 42.55 | round(1, 'floor') }} {{ 42.51 | round(0, 'ceil') }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 5 | round }} {{ -3 | abs }} {{ -3.5 | abs }} {{ 2.675 | round(2) }}
{{ 'hello' | replace('l', 'L') }} {{ 'hello' | replace('l', 'L', 1) }} {{ 123 | replace('2', 'x') }} {{ 'abc' | replace('', '-') }}
{{ lines | indent }} {{ lines | indent(2, true) }} {{ lines | indent(2, blank=true) }} {{ 'a\\nb\\n' | indent(width=1) }}| {{ 'x' | indent('>', first=true) }} {{ '' | indent(3, true) }}|
{{ 'a long text with words' | truncate(12) }} {{ 'a long text with words' | truncate(12, true) }} {{ 'short' | truncate(3) }} {{ 'a long text with words' | truncate(12, leeway=0, end='!') }}
{{ 'abc' | center(9) }}| {{ 'abc' | center(8) }}| {{ 'a b_c d-e' | wordcount }} {{ 'a b/\u00e9?' | urlencode }} {{ '%s is %d' | format('x', 3) }}
{{ html | e }} {{ html | escape }} {{ html | safe }} {{ ('<a>' | safe) + '<b>' }} {{ '<b>' + ('<a>' | safe) }} {{ ('<a>' | safe) ~ '<b>' }} {{ (html | e | e) == (html | e) }} {{ html | e | forceescape }} {{ ('<a>' | safe) is escaped }}
{{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.lstrip('ab') }}|{{ text.strip(none) }}|{{ '\\x1c\\x85\u3000a\u00a0'.strip() }}
{{ words.split() }} {{ words.split(' ') }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ '  a  b  '.split(none, 1) }} {{ '  a  b  '.rsplit(none, 1) }} {{ 'a<think>b</think>c'.split('</think>')[-1] }}
{{ 'abc'.split('') }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a\\x0bb\\x0cc\\x1cd\\x85e\u2028f'.splitlines() }}
{{ path.startswith('a/') }} {{ path.endswith('.txt') }} {{ path.startswith(('x', 'a')) }} {{ path.endswith(('x', 'y')) }} {{ path.startswith('b', 2) }} {{ ''.startswith('') }}
{{ path.find('b') }} {{ path.find('z') }} {{ path.rfind('/') }} {{ path.index('b') }} {{ path.count('/') }} {{ 'aaa'.count('aa') }} {{ 'abc'.find('c', 1) }} {{ '\u00e9\u00e9a'.find('a') }} {{ 'abc'.find('a', 1) }} {{ 'abcabc'.find('c', -2) }}
{{ path.index('z') }}
{{ path.replace('/', '::') }} {{ path.replace('/', '', 1) }} {{ 'aaa'.replace('aa', 'b') }} {{ 'ab'.replace('', '.') }}
{{ path.replace(1, 'a') }}
{{ ', '.join(['a', 'b']) }} {{ ''.join('abc') }} {{ '-'.join(mapping) }} {{ '-'.join([]) }}|
{{ ','.join([1, 2]) }}
{{ 'hello world'.title() }} {{ "they're bill's".title() }} {{ 'hELLO'.capitalize() }} {{ 'aBc'.swapcase() }} {{ 'stra\u00dfe'.upper() }} {{ '\u0391\u03a3'.lower() }}
{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}
{{ 'a'.center(4) }}| {{ 'a'.center(5, '*') }}| {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '0') }} {{ '5'.zfill(3) }} {{ '-5'.zfill(4) }} {{ 'abcd'.zfill(2) }}
{{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ ''.isdigit() }} {{ '1.5'.isnumeric() }} {{ 'A1'.isupper() }} {{ '1'.isupper() }}
{{ '{} and {}'.format(1, 'b') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{name}'.format(name='x') }} {{ '{{}}'.format() }} {{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }} {{ '{:05d} {:,} {:.2f} {:x} {:+d} {:e} {:%}'.format(42, 1234567, 3.14159, 255, 5, 12345.678, 0.25) }} {{ '{!r}'.format('a') }} {{ '{:.3}'.format('abcdef') }}
{{ '{}'.format() }}
{{ '%s and %s' % ('a', 1) }} {{ '%d%%' % 50 }} {{ '%05.1f|%-5s|%5s|%x|%r' % (3.14159, 'a', 'b', 255, 'q') }} {{ '%(a)s' % {'a': 1} }} {{ '%s' % none }} {{ '%s' % [1] }} {{ '%i' % 3.9 }} {{ '%+d' % 5 }}
{{ '%s %s' % 'a' }}
{{ '%d' % 'a' }}
{{ 'a'.nomethod() }}
{{ items.append(4) }}
{{ mapping.update({'x': 1}) }}
{{ mapping.pop('b') }}
{{ items.index(1) }} {{ items.count(2) }} {{ (1, 2, 2).count(2) }} {{ items.copy() }} {{ mapping.copy() == mapping }}
{{ items.index(99) }}
{{ text.__class__ }}
{% for x in items %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.previtem }}/{{ loop.nextitem }};{% endfor %}
{% for x in items %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{{ loop.depth }}{% endfor %}
{% for k, v in mapping.items() %}{{ k }}={{ v }};{% endfor %}{% for k in mapping %}{{ k }}{% endfor %}{% for c in 'ab' %}[{{ c }}]{% endfor %}
{% for x in [] %}a{% else %}none{% endfor %}{% for x in missing %}a{% else %}missing{% endfor %}{% for x in items if x > 1 %}{{ x }}{{ loop.length }}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in number %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in range(3) %}{% for y in range(3) %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}
{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}:{{ loop.depth }}{% endif %}{% endfor %}
{% set x = 1 %}{% for i in items %}{% set x = i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(found=false, n=0) %}{% for i in items %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}{{ ns.found }}{{ ns.missing }}{{ ns }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}
{% set x = {} %}{% set x.a = 1 %}
{% set ns = namespace(_private=1) %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}{% set (a, b) = (b, a) %}{{ a }}{{ b }}
{% set a, b = [1] %}
{% set x %}  captured {{ number }}{% endset %}[{{ x }}]{% set y | trim | upper %} abc {% endset %}[{{ y }}]
{% set x %}{% set inner = 5 %}{% endset %}{{ inner is defined }}
{% filter upper %}abc {{ number }}{% endfilter %}{% filter trim %}   x   {% endfilter %}|
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 5) }} {{ m(1, c='y') }} {{ m(a=3) }} {{ m() }} {{ m(1, 2, 3) | length }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=1) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(7) }}
{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}{% for i in [5] %}{% set x = i %}{{ m() }}{% endfor %}
{% macro fact(n) %}{{ 1 if n <= 1 else n * (fact(n - 1) | int) }}{% endmacro %}{{ fact(5) }}
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ number }}{% endcall %}
{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% endcall %}
{% macro m() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}
{{ m() }}{% macro m() %}late{% endmacro %}
{% generation %}said{% set inner = 1 %}{% endgeneration %}{{ inner is defined }}
{%- generation -%}  trimmed  {%- endgeneration -%}
{% block b %}in a block{% endblock %}
{{ range(5) | list }} {{ range(2, 5) | list }} {{ range(5, 0, -2) | list }} {{ range(3) }} {{ range(3)[1] }} {{ range(1, 9, 3) }}
{{ range(1000000) }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)], y=2) }} {{ dict({'a': 1}) }}
{% set j = joiner('; ') %}{% for x in items %}{{ j() }}{{ x }}{% endfor %}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}
{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j') }}
{{ raise_exception('refused') }}
{{ unknown_function(1) }}
{{ 'a' | no_such_filter }}
{{ 'a' is no_such_test }}
{% if false %}{{ 'a' | no_such_filter }}{% endif %}fine
{% if true %}{{ 'a' | no_such_filter }}{% endif %}fine
{% for x in [] %}{{ 'a' | no_such_filter }}{% endfor %}fine
{{ 'a' | no_such_filter if false else 'fine' }}
{% if number == 42 %}a{% elif number == 43 %}b{% else %}c{% endif %}{% if missing %}a{% elif '' %}b{% else %}c{% endif %}{% if missing is defined and missing.x %}a{% endif %}
{# comment #}a{#- comment -#}  b
{% raw %}{{ not rendered }} {% if %}{% endraw %}
{%- if true -%}   a   {%- endif -%}   b
{{- 'a' -}}   b   {{- 'c' -}}
{{ 'a' 'b' }} {{ "\\x41\\u00e9\\t|" }} {{ 'it\\'s' }} {{ "a\\d" }}
{% do items %}
{% include 'x' %}
{% import 'x' as y %}
{% extends 'x' %}
{% if true %}
{% endif %}
{{ 'unclosed
{{ 1 + }}
{% for %}{% endfor %}
{% unknown_tag %}
{{ mapping.C.k }} {{ mapping['C']['k'] }} {{ people[1].name }} {{ people.0.name }} {{ (people | first).name }} {{ [{'a': 1}][0].a }} {{ {'a': {'b': 2}}.a.b }} {{ 'abc'[1] }} {{ 'abc'.upper()[0] }} {{ {'k': 1}['k'] }}
{{ -number }} {{ -fraction }} {{ -2 ** 2 }} {{ 2 + 3 * 4 - 1 }} {{ (2 + 3) * 4 }} {{ 10 - 2 - 3 }} {{ 2 * 3 % 4 }} {{ 'a' ~ 'b' + 'c' }} {{ 1 + 2 ~ 3 }}
{{ not 1 == 2 }} {{ not (1 == 1) }} {{ 1 == 1 and 2 == 2 or false }} {{ not true or true }} {{ number > 40 and number < 50 }} {{ 'a' in 'abc' and not 'z' in 'abc' }}
{{ number is defined and number is number }} {{ missing is not defined or missing }} {{ text is string and text | length > 3 }} {{ items | length > 2 }} {{ 'x' ~ items | length }}
{{ [1, 2, 3,] }} {{ {'a': 1,} }} {{ (1, 2,) }} {{ {'a': [1, {'b': (2,)}]} }} {{ {1: 'a', 'b': none} }}
{{ [[1, 2], [3]] | sum(start=[]) }}
{{ {'a': 1} | attr('a') is defined }} {{ text | attr('upper') is defined }} {{ mapping.b is defined }} {{ mapping.values is defined }}
{{ {[1]: 2} }}
"""


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 5, 14, 7, 9)


# Snippets of several lines.
LONGER = [
    "   {% if true %}\n   a\n   {% endif %}\n   b\n",
    "{{ 'multi\nline' }}\n\n",
    "{# comment\nof lines #}\na {# one #} b\n  {# alone #}\nc",
    "{% for x in items %}\n    {% if x > 1 %}\n        {{ x }}\n    {% endif %}\n{% endfor %}\nend",
    "{%+ if true %}\n  a\n  {%+ endif +%}\nb",
    "a\r\n{% if true %}\r\nb\r{% endif %}\rc\r\n",
    "{% macro m(x) -%}\n  <{{ x }}>\n{%- endmacro %}\n{{ m(1) }}\n{{ m(2) }}",
    "\n\n{{ number }}\n\n",
    "{% raw -%}\n  {{ a }}\n{%- endraw %}\nx",
    "x {% set a = 1 %} y\n\t{% set b = 2 %}\t\nz",
    "{{\n  number\n}}{{ [\n1,\n2\n] }}",
]


def main():
    chat_template_utils.datetime = Clock
    results = []
    for source in SNIPPETS.strip("\n").split("\n") + LONGER:
        try:
            text = chat_template_utils._compile_jinja_template(source).render(**VARIABLES)
        except Exception:
            text = None
        results.append({"source": source, "text": text})
    with open(sys.argv[1], "w") as file:
        json.dump({"variables": VARIABLES, "snippets": results}, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(f"{len(results)} snippets, {sum(own['text'] is None for own in results)} fail")


if __name__ == "__main__":
    main()
