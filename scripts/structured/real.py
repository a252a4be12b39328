"""Sixty schemas of the kind people send: what one would ask a model to fill in."""


def obj(required=None, extra=False, /, **properties):
    """An object; all properties are required unless a list says which."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": extra}


def arr(items, least=0, most=4):
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


def tagged(tag, name, /, **properties):
    return obj(**{tag: {"const": name}}, **properties)


def text(most=40, **more):
    return {"type": "string", "maxLength": most, **more}


WORD = text(16, minLength=1)
INT = {"type": "integer"}
NUM = {"type": "number"}
BOOL = {"type": "boolean"}
NULL = {"type": "null"}
DAY = {"type": "string", "format": "date"}
MOMENT = {"type": "string", "format": "date-time"}
MAIL = {"type": "string", "format": "email"}
UUID = {"type": "string", "format": "uuid"}
URI = text(60, pattern="^https://[a-z]{2,12}\\.(com|org|net)(/[a-z0-9]{1,8}){0,3}$")


def between(low, high, kind="integer"):
    return {"type": kind, "minimum": low, "maximum": high}


REAL = {
    "person": obj(name=WORD, age=between(0, 130), email=MAIL),
    "address": obj(["street", "city"], street=text(), city=WORD, zip={"type": "string", "pattern": "^[0-9]{5}(-[0-9]{4})?$"}),
    "product": obj(sku={"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}, title=text(), price={"type": "number", "exclusiveMinimum": 0, "maximum": 10000}, tags=arr(WORD)),
    "sentiment": obj(sentiment={"enum": ["positive", "neutral", "negative"]}, confidence=between(0, 1, "number")),
    "translation": obj(source_language={"enum": ["en", "de", "fr", "ja"]}, text=text(60), translated=text(60)),
    "recipe": obj(title=text(), servings=between(1, 12), ingredients=arr(obj(name=WORD, amount=NUM, unit={"enum": ["g", "ml", "piece"]}), 1, 4), steps=arr(text(50), 1, 3)),
    "invoice": obj(number={"type": "string", "pattern": "^INV-[0-9]{6}$"}, date=DAY, lines=arr(obj(text=text(20), quantity=between(1, 99), price={"type": "number", "minimum": 0, "multipleOf": 0.01}), 1, 3), paid=BOOL),
    "event": obj(["title", "start"], title=text(), start=MOMENT, end=MOMENT, place=text(), online=BOOL),
    "geojson point": obj(type={"const": "Point"}, coordinates={"type": "array", "prefixItems": [between(-180, 180, "number"), between(-90, 90, "number")], "minItems": 2, "maxItems": 2, "items": False}),
    "geojson geometry": {"oneOf": [ref("point"), ref("line")], "$defs": {"position": {"type": "array", "items": between(-90, 90, "number"), "minItems": 2, "maxItems": 3}, "point": tagged("type", "Point", coordinates=ref("position")), "line": tagged("type", "LineString", coordinates=arr(ref("position"), 2, 3))}},
    "tree": {"$ref": "#/$defs/node", "$defs": {"node": obj(["value"], value=between(0, 9), left=ref("node"), right=ref("node"))}},
    "list": {"$ref": "#/$defs/cell", "$defs": {"cell": {"anyOf": [NULL, obj(head=between(0, 99), tail=ref("cell"))]}}},
    "expression": {"$ref": "#/$defs/e", "$defs": {"e": {"oneOf": [NUM, tagged("op", "neg", of=ref("e")), tagged("op", "add", left=ref("e"), right=ref("e"))]}}},
    "comment thread": {"$ref": "#/$defs/c", "$defs": {"c": obj(["author", "text"], author=WORD, text=text(), replies=arr(ref("c"), 0, 2))}},
    "file system": {"$ref": "#/$defs/entry", "$defs": {"entry": {"oneOf": [ref("file"), ref("folder")]}, "file": tagged("kind", "file", name=WORD, size=between(0, 10**9)), "folder": tagged("kind", "folder", name=WORD, entries=arr(ref("entry"), 0, 2))}},
    "shape": {"oneOf": [tagged("shape", "circle", radius=NUM), tagged("shape", "square", side=NUM), tagged("shape", "polygon", points=arr(arr(NUM, 2, 2), 3, 4))]},
    "payment": {"oneOf": [tagged("method", "card", last4={"type": "string", "pattern": "^[0-9]{4}$"}), tagged("method", "iban", iban={"type": "string", "pattern": "^DE[0-9]{20}$"}), tagged("method", "cash")]},
    "http request": obj(["method", "path"], method={"enum": ["GET", "POST", "PUT", "DELETE"]}, path=text(30, pattern="^/[a-z0-9/]*$"), headers={"type": "object", "additionalProperties": text(20)}, body={"type": ["string", "null"], "maxLength": 40}),
    "http answer": obj(status=between(100, 599), headers={"type": "object", "patternProperties": {"^x-[a-z]{1,8}$": text(20)}, "additionalProperties": False}),
    "log line": obj(time=MOMENT, level={"enum": ["debug", "info", "warn", "error"]}, message=text(60), code={"type": ["integer", "null"]}),
    "user account": obj(id=UUID, login={"type": "string", "pattern": "^[a-z][a-z0-9_]{2,15}$"}, roles=arr({"enum": ["admin", "editor", "viewer"]}, 1, 3), created=DAY),
    "network": obj(host={"type": "string", "format": "hostname", "maxLength": 30}, v4={"type": "string", "format": "ipv4"}, v6={"type": "string", "format": "ipv6"}),
    "weather": obj(place=WORD, celsius=between(-60, 60, "number"), sky={"enum": ["clear", "cloudy", "rain", "snow", "fog"]}, wind=obj(speed=between(0, 120), direction={"enum": ["N", "NE", "E", "SE", "S", "SW", "W", "NW"]})),
    "movie": obj(["title", "year"], title=text(), year=between(1888, 2100), genres=arr({"enum": ["drama", "comedy", "horror", "western"]}, 1, 3), rating=between(0, 10, "number")),
    "book": obj(title=text(), isbn={"type": "string", "pattern": "^97[89]-[0-9]{1,5}-[0-9]{1,7}-[0-9]{1,7}-[0-9]$"}, authors=arr(WORD, 1, 3)),
    "quiz": obj(questions=arr(obj(question=text(50), answers=arr(text(20), 4, 4), right=between(0, 3)), 1, 2)),
    "classification": {"enum": ["spam", "ham", "unsure"]},
    "yes or no": {"type": "boolean"},
    "number alone": between(1, 10),
    "text alone": text(30, minLength=5),
    "tags": arr({"type": "string", "pattern": "^#[a-z]{2,12}$"}, 1, 5),
    "matrix": arr(arr(between(-9, 9), 3, 3), 3, 3),
    "tuple": {"type": "array", "prefixItems": [WORD, INT, BOOL], "items": False, "minItems": 3},
    "tuple and more": {"type": "array", "prefixItems": [WORD], "items": between(0, 5), "minItems": 1, "maxItems": 4},
    "dictionary of numbers": {"type": "object", "additionalProperties": between(0, 100)},
    "dictionary of lists": {"type": "object", "additionalProperties": arr(WORD, 0, 2)},
    "settings": obj([], theme={"enum": ["light", "dark"]}, size=between(8, 32), wrap=BOOL, font={"type": ["string", "null"], "maxLength": 12}),
    "all optional": obj([], a=INT, b=WORD, c=BOOL, d=NULL),
    "open object": obj(["id"], True, id=INT),
    "unicode keys": obj(["名前", "größe"], **{"名前": text(8), "größe": between(50, 250), "été": BOOL, "emoji 🙂": text(4)}),
    "quoted keys": obj(**{"a \"b\"": INT, "back\\slash": BOOL, "tab\t": NULL}),
    "unicode values": {"enum": ["日本", "Ελλάδα", "Côte d'Ivoire", "Россия", "🙂"]},
    "constants": obj(version={"const": 2}, kind={"const": "x"}, on={"const": True}, none={"const": None}, deep={"const": {"a": [1, {"b": "c"}]}}),
    "mixed enum": {"enum": [1, "one", None, True, [1, 2], {"a": 1}]},
    "bounds": obj(a={"type": "integer", "exclusiveMinimum": -10, "exclusiveMaximum": 10}, b=between(-0.5, 0.5, "number"), c={"type": "number", "exclusiveMinimum": 0}, d={"type": "integer", "maximum": -100}, e={"type": "integer", "multipleOf": 7}),
    "lengths": obj(exact={"type": "string", "minLength": 5, "maxLength": 5}, least={"type": "string", "minLength": 3, "maxLength": 30}, empty={"type": "string", "maxLength": 0}),
    "patterns": obj(hex={"type": "string", "pattern": "^#[0-9a-f]{6}$"}, semver={"type": "string", "pattern": "^[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}$"}, word={"type": "string", "pattern": "^\\w{1,10}$"}, some=text(20, pattern="[0-9]")),
    "formats": obj(day=DAY, moment=MOMENT, time={"type": "string", "format": "time"}, long={"type": "string", "format": "duration"}, id=UUID, mail=MAIL),
    "all of": {"allOf": [obj(["a"], True, a=INT), obj(["b"], True, b=WORD)]},
    "any of": {"anyOf": [obj(a=INT), arr(INT), WORD, NULL]},
    "types": {"type": ["string", "integer", "null", "boolean"], "maxLength": 10},
    "reference with siblings": obj(x={"$ref": "#/$defs/n", "description": "a number"}, y={"$ref": "#/$defs/n"}) | {"$defs": {"n": between(0, 7)}},
    "definitions of an old draft": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": {"$ref": "#/definitions/d"}}, "required": ["a"], "additionalProperties": False, "definitions": {"d": {"type": "string", "maxLength": 9}}},
    "old tuples": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [INT, BOOL], "additionalItems": False, "minItems": 2},
    "function call": {"oneOf": [obj(name={"const": "get_weather"}, arguments=obj(["city"], city=WORD, unit={"enum": ["C", "F"]})), obj(name={"const": "send_mail"}, arguments=obj(to=MAIL, subject=text(30), body=text(60)))]},
    "chain of thought": obj(steps=arr(obj(explanation=text(60), output=text(30)), 1, 3), final_answer=text(20)),
    "entities": obj(entities=arr(obj(text=WORD, label={"enum": ["PERSON", "ORG", "PLACE", "DATE"]}, start=between(0, 999), end=between(0, 999)), 0, 3)),
    "sql filter": {"$ref": "#/$defs/f", "$defs": {"f": {"oneOf": [tagged("op", "and", of=arr(ref("f"), 1, 2)), tagged("op", "not", filter=ref("f")), tagged("op", "eq", column=WORD, value={"type": ["string", "number", "boolean"], "maxLength": 10})]}}},
    "timetable": obj(**{day: arr({"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}, 0, 2) for day in ["mon", "tue", "wed", "thu", "fri"]}),
    "deep nesting": obj(a=obj(b=obj(c=obj(d=obj(e=obj(f=between(0, 3))))))),
}

assert len(REAL) == 60, len(REAL)
