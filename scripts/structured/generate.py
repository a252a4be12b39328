"""Random schemas from a seed, of everything akunu guarantees."""

import random

FORMATS = ["date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]
PATTERNS = ["^[a-z]{3,8}$", "^[A-Z][a-z]+( [A-Z][a-z]+)?$", "^\\d{2}:\\d{2}$", "^(yes|no|maybe)$", "^[^\\s]{1,6}$", "[0-9]$"]
KEYS = ["id", "name", "value", "größe", "名前", "a b", "x\"y", "items", "kind", "note", "ключ", "n/a", "z~1"]
WORDS = ["alpha", "beta", "γάμμα", "日本", "", "a\"b", "tab\there", "line\nfeed", "😀"]


class Schemas:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *options):
        return self.random.choice(options)

    def string(self):
        kind = self.random.randrange(4)
        if kind == 0:
            return {"type": "string", "format": self.random.choice(FORMATS)}
        if kind == 1:
            return {"type": "string", "pattern": self.random.choice(PATTERNS), "maxLength": 30}
        least = self.random.randrange(6)
        return {"type": "string", "minLength": least, "maxLength": least + self.random.randrange(20)}

    def number(self):
        schema = {"type": self.pick("integer", "number")}
        low = self.random.randrange(-500, 500)
        span = self.random.randrange(1, 1000)
        if schema["type"] == "number" and self.random.random() < 0.5:
            low += self.random.randrange(100) / 100
        if self.random.random() < 0.7:
            schema[self.pick("minimum", "exclusiveMinimum")] = low
        if self.random.random() < 0.7:
            schema[self.pick("maximum", "exclusiveMaximum")] = low + span + 20
        if self.random.random() < 0.2:
            schema["multipleOf"] = self.pick(2, 5, 10) if schema["type"] == "integer" else self.pick(0.5, 0.25, 2)
        return schema

    def leaf(self):
        kind = self.random.randrange(6)
        if kind == 0:
            return self.string()
        if kind == 1:
            return self.number()
        if kind == 2:
            options = WORDS + [0, 1, -3, 2.5, None, True, [1], {"a": 1}]
            return {"enum": self.random.sample(options, self.random.randrange(1, 5))}
        if kind == 3:
            return {"const": self.pick(*WORDS, 7, None, False, [1, "x"], {"k": {"l": 1}})}
        if kind == 4:
            return {"type": self.pick("boolean", "null")}
        return {"type": self.random.sample(["string", "integer", "boolean", "null"], 2), "maxLength": 12}

    def object(self, depth):
        keys = self.random.sample(KEYS, self.random.randrange(1, 5))
        schema = {"type": "object", "properties": {key: self.schema(depth - 1) for key in keys}}
        schema["required"] = [key for key in keys if self.random.random() < 0.6]
        more = self.random.random()
        if more < 0.7:
            schema["additionalProperties"] = False
        elif more < 0.85:
            schema["additionalProperties"] = self.leaf()
        if self.random.random() < 0.1:
            schema["title"] = "a title"
            schema["x-remark"] = {"not": "a schema"}
        return schema

    def array(self, depth):
        least = self.random.randrange(3)
        most = least + self.random.randrange(3)
        schema = {"type": "array", "items": self.schema(depth - 1), "minItems": least, "maxItems": most}
        if self.random.random() < 0.2:
            schema["prefixItems"] = [self.leaf() for _ in range(self.random.randrange(1, 3))]
        return schema

    def one_of(self, depth):
        tags = self.random.sample(["a", "b", "c", "d"], self.random.randrange(2, 4))
        options = []
        for tag in tags:
            option = self.object(depth - 1)
            option["properties"] = {"tag": {"const": tag}, **option["properties"]}
            option["required"] = ["tag"] + option["required"]
            options.append(option)
        return {"oneOf": options}

    def schema(self, depth):
        if depth <= 0:
            return self.leaf()
        kind = self.random.randrange(10)
        if kind < 3:
            return self.object(depth)
        if kind < 5:
            return self.array(depth)
        if kind == 5:
            return {"anyOf": [self.schema(depth - 1) for _ in range(self.random.randrange(2, 4))]}
        if kind == 6:
            return self.one_of(depth)
        if kind == 7:
            return {"$ref": "#/$defs/" + self.pick("one", "two", "loop")}
        return self.leaf()

    def whole(self):
        schema = self.pick(self.object, self.object, self.array, self.schema)(3)
        after = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/loop"}]}
        loop = {"type": "object", "properties": {"v": self.leaf(), "next": after}}
        loop |= {"required": ["v"], "additionalProperties": False}
        return {**schema, "$defs": {"one": self.leaf(), "two": self.array(1), "loop": loop}}


def schemas(count, seed=1):
    """The first `count` schemas of a seed, by name."""
    return {f"random {i}": Schemas(f"{seed}/{i}").whole() for i in range(count)}
